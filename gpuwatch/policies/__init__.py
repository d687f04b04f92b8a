"""Policies: each looks at one pool of an observation and proposes; none acts, sleeps or remembers."""
