package codec

// DolbySamples returns those of an E-AC-3 frame: 1 to 6 blocks of 256. Frames of other streams than
// the first add none. Source: ETSI TS 102 366.
func DolbySamples(b []byte) int64 {
	switch {
	case len(b) < 5 || b[0] != 0x0b || b[1] != 0x77:
		return 0
	case b[4]>>6 == 3:
		return 1536
	}
	return 256 * [4]int64{1, 2, 3, 6}[b[4]>>4&3]
}
