"""Ways a message leaves: mail, Alertmanager, Slack, DingTalk, WeCom, Feishu, webhook, apprise, file."""
