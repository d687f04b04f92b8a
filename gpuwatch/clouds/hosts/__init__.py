"""Hosts of one's own, without a cloud: settings, a file, DNS or the register of hosts that joined name them."""
