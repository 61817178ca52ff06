"""Training jobs over srv6d: the paths of all ranks are placed before the first packet of the job is sent.

``srv6d.torch.init_process_group`` takes the place of ``torch.distributed.init_process_group``. The other modules need no
PyTorch: ``client`` speaks the management socket of the daemon, ``environment`` finds rank and addresses, ``coordinate``
makes a job out of ranks that share a store.
"""

__version__ = "0.1.0"
