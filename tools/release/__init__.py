"""`make release`: everything that is handed out, in dist/. Decisions: docs/adr/0026-packages.md."""
