package flac

// crc16Tables holds the checksum of frames, polynomial x^16+x^15+x^2+1, for a byte followed by 0 to
// 7 zero bytes.
var crc16Tables = func() (t [8][256]uint16) {
	for i := range 256 {
		sum := uint16(i) << 8
		for range 8 {
			sum = sum<<1 ^ sum>>15*0x8005
		}
		t[0][i] = sum
	}
	for k := 1; k < 8; k++ {
		for i := range 256 {
			t[k][i] = t[k-1][i]<<8 ^ t[0][t[k-1][i]>>8]
		}
	}
	return t
}()

// crc16 is 0 over a whole frame, its footer included.
func crc16(b []byte) (sum uint16) {
	var folded [foldedLen + 8]byte
	if len(b) > 2*foldedLen {
		b = fold(&folded, b)
	}
	t := &crc16Tables
	for ; len(b) >= 8; b = b[8:] {
		x := be.Uint64(b)
		low := t[5][byte(x>>40)] ^ t[4][byte(x>>32)] ^ t[3][byte(x>>24)] ^
			t[2][byte(x>>16)] ^ t[1][byte(x>>8)] ^ t[0][byte(x)]
		sum ^= uint16(x >> 48)
		sum = low ^ t[7][sum>>8] ^ t[6][byte(sum)]
	}
	for _, x := range b {
		sum = sum<<8 ^ t[0][byte(sum>>8)^x]
	}
	return sum
}

const (
	foldedWords = 16
	foldedLen   = 8 * foldedWords
)

// fold returns foldedLen bytes and up to 7 more whose checksum is that of b. Modulo 2, squaring a
// polynomial doubles its exponents, so that the checksum's divides x^1024+x^960+x^128+1, its 64th
// power: a word of 64 bits may be taken away when it is added 1, 14 and 16 words behind. That takes
// a third of the time of tables.
func fold(into *[foldedLen + 8]byte, b []byte) []byte {
	var words [foldedWords]uint64 // the last words that were taken away
	last, next := uint64(0), 0
	for ; len(b) >= 2*foldedLen; b = b[foldedLen:] {
		block := (*[foldedLen]byte)(b)
		for k := range foldedWords {
			last ^= le.Uint64(block[8*k:]) ^ words[(k+2)%foldedWords] ^ words[k]
			words[k] = last
		}
	}
	for ; len(b) >= foldedLen+8; b = b[8:] {
		last ^= le.Uint64(b) ^ words[(next+2)%foldedWords] ^ words[next]
		words[next] = last
		next++
	}
	tail := into[:copy(into[:], b)]
	for k := range foldedWords {
		x := le.Uint64(tail[8*k:]) ^ words[(next+k)%foldedWords]
		if k < foldedWords-2 {
			x ^= words[(next+k+2)%foldedWords]
		}
		if k == 0 {
			x ^= last
		}
		le.PutUint64(tail[8*k:], x)
	}
	return tail
}
