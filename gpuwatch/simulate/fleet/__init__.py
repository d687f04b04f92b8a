"""A fleet that exists only here, with the truth about it: what the demo shows and headless runs measure.

The flow: `lives` writes seeded lives, `traces` reads recorded ones. `world` gives each a host (simulated GPUs read by
the agent's own code) and a machine in a cloud, and lets users start what they need. It keeps the truth: when machines
ran, when they computed, who was at work. gpuwatch's verdicts never enter the truth. `demo.py` adds the real controller.
"""
