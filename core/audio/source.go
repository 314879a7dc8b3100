package audio

import "hash/crc32"

const (
	// headLen is read at once: enough for the header of nearly every file, for the headers and the first audio page of a Vorbis
	// file, and for a FLAC file up to its first frame, with the 8 KiB that its encoder leaves free for tags.
	headLen = 9 << 10
	// shortHeadLen is read at once of files whose names say that they need no more: what follows is mostly samples.
	shortHeadLen = 4 << 10
	// wavHeadLen is read at once of WAV files. Their headers are shorter still, and for copying less a scan is a tenth faster.
	wavHeadLen = 1 << 10
	// maxRead bounds one read, whatever a header asks for.
	maxRead = 4 << 20
)

// source is one encoded file, on disk or in memory, read at offsets with short, bounded reads.
type source struct {
	fd handle
	// folders may be nil.
	folders *folders
	start   int64  // where it begins in the file on disk, 0 unless it is a section
	limit   int64  // bytes of a section, 0 for the file to its end
	size    int64  // bytes in all
	head    []byte // the first bytes; all of them when whole
	whole   bool   // head is everything: nothing more to read
	err     error  // the first read error
	rest    uint32 // checksum of what was read behind the head
	telling bool   // that is not dull
	heap    [headLen]byte
	more    []byte // scratch for reads behind the head
}

// reset forgets the file before.
func (s *source) reset() {
	s.fd, s.size, s.head, s.whole, s.err, s.rest, s.telling = noFile, 0, nil, false, nil, 0, false
}

// hold takes a whole file in memory.
func (s *source) hold(b []byte) {
	s.fd, s.size, s.head, s.whole, s.err = noFile, int64(len(b)), b, true, nil
}

// section lets the file to be opened be size bytes from start on of the one on disk; size 0 is to its end.
func (s *source) section(start, size int64) { s.start, s.limit = start, size }

// begin reads the head of the file that was opened, whose size is known: so much of it, 0 for what suits most.
func (s *source) begin(size, first int64) {
	s.size = max(0, size-s.start)
	if s.limit > 0 { // a section
		s.size = min(s.size, s.limit)
	}
	if first == 0 {
		first = headLen
	}
	s.head = s.heap[:s.pread(s.heap[:min(s.size, first)], 0)]
	s.whole = s.size <= first
}

// scratch is how many bytes were needed for reads behind the head.
func (s *source) scratch() int { return cap(s.more) }

// at gives up to n bytes from off, fewer at the end of the file. They are valid until the next call.
func (s *source) at(off int64, n int) []byte {
	if off < 0 || off >= s.size || n <= 0 {
		return nil
	}
	n = int(min(int64(n), s.size-off, maxRead))
	if end := off + int64(n); end <= int64(len(s.head)) {
		return s.head[off:end]
	}
	if s.whole { // the file shrank since its size was taken
		return s.head[min(off, int64(len(s.head))):]
	}
	if off+int64(n) <= headLen && s.extend(off+int64(n)) {
		return s.at(off, n)
	}
	if cap(s.more) < n {
		s.more = make([]byte, max(n, 2*headLen))
	}
	found := s.more[:s.pread(s.more[:n], off)]
	s.mark(found)
	return found
}

// extend reads more of the head: up to a byte, and some behind it. It says no when there was none to read.
func (s *source) extend(to int64) bool {
	have, want := len(s.head), headLen
	if to <= shortHeadLen {
		want = shortHeadLen
	}
	want = int(min(s.size, int64(want)))
	if s.whole || have >= want {
		return false
	}
	more := s.pread(s.heap[have:want], int64(have))
	s.mark(s.heap[have : have+more])
	s.head = s.heap[:have+more]
	return more > 0
}

// markLen is as much of the end of each read behind the head as marks the file.
const markLen = 1 << 10

// mark notes what was read behind the head.
func (s *source) mark(b []byte) {
	b = b[max(0, len(b)-markLen):]
	s.rest = crc32.Update(s.rest, castagnoli, b)
	s.telling = s.telling || !dull(b)
}
