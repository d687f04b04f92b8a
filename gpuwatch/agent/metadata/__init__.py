"""What the cloud says of the machine: who it is, and that it will soon be taken away.

`protocol` holds the nouns, one module per cloud its tables and pure parsers, `detect` reads the cloud off the board,
`client` asks over HTTP, `watcher` asks again and again, `hook` runs the administrator's command.
"""
