"""Records TCP traffic as a pcap without root privileges; the proxy can also simulate a bad network."""
