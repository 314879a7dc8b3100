package codec

// ALACSamples returns the samples per channel in a packet of Apple Lossless. Its head has the count
// where the packet is not full. Source: Apple "ALACAudioTypes" and its decoder: tag 3 bits,
// instance 4, unused 12, has size 1, shift 2, escape 1, size 32.
func ALACSamples(b []byte, full int64) int64 {
	if len(b) < 7 || b[2]&0x10 == 0 {
		return full
	}
	return min(full, int64(b[2]&1)<<31|int64(be.Uint32(b[3:])>>1))
}
