"""NVIDIA GPUs through NVML. A metric is one field of GpuReading and one row of `rows.py`.

A value that the driver does not give is None. A row's next way is tried only where the one before is unsupported or
has nothing new, never after an error. What a GPU does not support is asked again only after `source.FORGET_SECONDS`,
when MIG has changed, or when the GPU is found again. A slow row's value is shown for SLOW_SECONDS after a read that
succeeded. A lost GPU is down while the others are read as ever.
"""
