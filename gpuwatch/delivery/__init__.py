"""How reports and notices get to people: mail, Slack, webhooks. Their settings are in `knobs`, which is pure."""
