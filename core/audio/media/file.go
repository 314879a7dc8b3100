// Package media is what every parser of audio reads from and answers with: a file read at offsets
// with short, bounded reads, a window on it for walks over many small structures, and the duration,
// or the reason why there is none.
package media

import "hash/crc32"

const (
	// HeadLen is read at once: enough for the header of nearly every file, for the headers and the
	// first audio page of a Vorbis file, and for a FLAC file up to its first frame, with the 8 KiB
	// that its encoder leaves free for tags.
	HeadLen = 9 << 10
	// ShortHeadLen is the first read of files whose extension needs no more: what follows is mostly
	// samples.
	ShortHeadLen = 4 << 10
	// WholeLen is the size up to which a file is read completely where more than the head is
	// needed: another read costs more than the bytes between.
	WholeLen = 32 << 10
	// MaxRead bounds one read, whatever a header asks for.
	MaxRead = 4 << 20
)

// File is one encoded file, on disk or in memory, read at offsets with short, bounded reads.
type File struct {
	fd       handle
	start    int64  // where it begins in the file on disk, 0 unless it is a section
	limit    int64  // bytes of a section, 0 for the file to its end
	Size     int64  // bytes in all
	Head     []byte // the first bytes; all of them when whole
	complete bool   // head is everything: nothing more to read
	Err      error  // the first read error
	tailSum  uint32 // checksum of what was read after the head
	telling  bool   // that is not dull
	heap     [WholeLen]byte
	more     []byte // scratch for reads after the head
}

func (s *File) reset() {
	s.fd, s.Size, s.Head, s.complete, s.Err, s.tailSum, s.telling =
		noFile, 0, nil, false, nil, 0, false
}

// Hold takes a whole file in memory.
func (s *File) Hold(b []byte) {
	s.fd, s.Size, s.Head, s.complete, s.Err = noFile, int64(len(b)), b, true, nil
}

// Section lets the file to be opened be size bytes from start on of the one on disk; size 0 is to
// its end.
func (s *File) Section(start, size int64) { s.start, s.limit = start, size }

// begin reads the head of the file that was opened, whose size is known: so much of it, 0 for what
// suits most. HeadLen is for files whose end will be needed too.
func (s *File) begin(size, first int64) {
	s.Size = max(0, size-s.start)
	if s.limit > 0 { // a section
		s.Size = min(s.Size, s.limit)
	}
	if first == 0 {
		first = HeadLen
	}
	if first == HeadLen && s.Size <= WholeLen {
		first = WholeLen
	}
	s.Head = s.heap[:s.pread(s.heap[:min(s.Size, first)], 0)]
	s.complete = s.Size <= first
}

// At returns up to n bytes from off, fewer at the end of the file. They are valid until the next
// call.
func (s *File) At(off int64, n int) []byte {
	if 0 <= off && off < s.Size && n > 0 {
		s.extend(off + min(int64(n), s.Size-off, MaxRead))
	}
	return s.Alone(off, n)
}

// Alone is At for bytes whose neighbours will not be read, so it reads no more than those. From
// some kilobytes on, copying unused bytes takes longer than another read.
func (s *File) Alone(off int64, n int) []byte {
	if off < 0 || off >= s.Size || n <= 0 {
		return nil
	}
	n = int(min(int64(n), s.Size-off, MaxRead))
	if end := off + int64(n); end <= int64(len(s.Head)) {
		return s.Head[off:end]
	}
	if s.complete { // the file shrank since its size was taken
		return s.Head[min(off, int64(len(s.Head))):]
	}
	if cap(s.more) < n {
		s.more = make([]byte, max(n, 2*HeadLen))
	}
	b := s.more[:s.pread(s.more[:n], off)]
	s.mark(b)
	return b
}

// extend reads more of the head, up to a byte and some more; a short file completely. It returns
// false when there was nothing to read.
func (s *File) extend(to int64) bool {
	have, want := int64(len(s.Head)), s.Size
	switch {
	case to <= ShortHeadLen:
		want = min(want, ShortHeadLen)
	case s.Size <= WholeLen:
	case to <= HeadLen:
		want = HeadLen
	default:
		return false
	}
	if s.complete || have >= min(to, want) {
		return false
	}
	more := s.pread(s.heap[have:want], have)
	s.mark(s.heap[have : have+int64(more)])
	s.Head = s.heap[:have+int64(more)]
	return more > 0
}

// markLen is as much of the end of each read after the head as marks the file.
const markLen = 1 << 10

// Mark includes what begins at off, after a tag, in the digest, where that is part of the head.
func (s *File) Mark(off int64) {
	if end := off + markLen; end <= int64(len(s.Head)) {
		s.mark(s.Head[off:end])
	}
}

// mark notes what was read after the head.
func (s *File) mark(b []byte) {
	b = b[max(0, len(b)-markLen):]
	s.tailSum = crc32.Update(s.tailSum, castagnoli, b)
	s.telling = s.telling || !dull(b)
}
