"""Monthly budgets: spent, forecast, and what follows when one is near its end."""
