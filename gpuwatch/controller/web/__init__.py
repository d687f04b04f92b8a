"""The page of the controller and its API: what rounds saw, decided and did, for people and programs."""
