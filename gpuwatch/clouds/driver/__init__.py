"""Any cloud, by an executable of the user's."""
