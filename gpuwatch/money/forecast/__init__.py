"""Where spending is heading, with intervals, and how good such forecasts were."""
