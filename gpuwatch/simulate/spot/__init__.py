"""The policies of `gpuwatch.policies.spot` on recordings of spot capacity, minute by minute."""
