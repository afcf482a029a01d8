"""Capture files: pcap and pcapng, plain or compressed, read in windows of packets."""
