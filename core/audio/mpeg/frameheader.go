package mpeg

var (
	// mpegRates are in Hz, of version 1; version 2 halves them and version 2.5 once more. Index 3
	// is reserved.
	mpegRates = [4]int{44100, 48000, 32000, 0}
	mpegShift = [4]int{2, 0, 1, 0} // by version bits; 1 is reserved
	// mpegBitrates are in kbit/s: version 1 layers I to III, then versions 2 and 2.5. 0: free
	// format.
	mpegBitrates = [2][4][15]int{
		{
			1: {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
			2: {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
			3: {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
		},
		{
			1: {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
			2: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
			3: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		},
	}
	mpegSamples = [2][4]int{{1: 384, 2: 1152, 3: 1152}, {1: 384, 2: 1152, 3: 576}}
	mpegCodecs  = [4]string{1: "mp1", 2: "mp2", 3: "mp3"}
)

// headers holds every frame without padding, by the bits of version and layer, bit rate and
// sampling rate. Samples are 0 where these are reserved.
var headers = func() (t [1 << 10]syncFrame) {
	for i := range t {
		version, layer, code, rate := i>>8, 4-i>>6&3, i>>2&15, i&3
		if version == 1 || layer > 3 || code == 15 || rate == 3 {
			continue
		}
		f := syncFrame{kind: uint32(i)>>6<<9 | uint32(rate)<<2}
		f.samples = int32(mpegSamples[mpegLow(f)][layer])
		slot := mpegSlot(f)
		bitrate := mpegBitrates[mpegLow(f)][layer][code] * 1000
		f.size = int32(int(f.samples) * bitrate / (8 * slot * f.rate()) * slot)
		if code == 0 {
			f.kind |= kindFree
		}
		t[i] = f
	}
	return t
}()

// mpegLow is 1 for the low sampling rates of versions 2 and 2.5.
func mpegLow(f syncFrame) int {
	if f.kind>>11&3 == 3 {
		return 0
	}
	return 1
}

// mpegSlot is the unit of padding in bytes.
func mpegSlot(f syncFrame) int {
	if f.layer() == 1 {
		return 4
	}
	return 1
}

// parseMPEGHead reads the header of an MPEG audio frame. Sources: ISO/IEC 11172-3 and 13818-3;
// version 2.5 is Fraunhofer's extension to lower rates.
func parseMPEGHead(b []byte) (syncFrame, bool) {
	f := headers[int(b[1]&0x1e)<<5|int(b[2]>>2)]
	if b[2]&2 != 0 {
		f.size++
		if f.kind&kindLayer == kindLayer { // Layer I
			f.size += 3
		}
	}
	return f, f.samples > 0 && b[1] >= 0xe0
}

// mpegBitrate returns the bit/s of the MPEG audio frame that b starts with, 0 for free format.
func mpegBitrate(b []byte, f syncFrame) int {
	if f.isADTS() || len(b) < mpegHeadLen {
		return 0
	}
	return mpegBitrates[mpegLow(f)][f.layer()][b[2]>>4] * 1000
}

func mpegChannels(b []byte) int {
	if len(b) >= mpegHeadLen && b[3]>>6 == 3 {
		return 1
	}
	return 2
}
