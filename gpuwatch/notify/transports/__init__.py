"""Ways a message leaves: mail, Slack, webhook, apprise."""
