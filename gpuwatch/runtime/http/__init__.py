"""A small HTTP server with TLS, authentication and limits, for agent and controller; and an HTTP client."""
