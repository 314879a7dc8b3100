// Package media is what every parser of audio reads from and answers with: a file read at offsets with short, bounded reads, a
// window on it for walks over many small structures, and the duration, or the reason why there is none.
package media

import "hash/crc32"

const (
	// HeadLen is read at once: enough for the header of nearly every file, for the headers and the first audio page of a Vorbis
	// file, and for a FLAC file up to its first frame, with the 8 KiB that its encoder leaves free for tags.
	HeadLen = 9 << 10
	// ShortHeadLen is read at once of files whose names say that they need no more: what follows is mostly samples.
	ShortHeadLen = 4 << 10
	// WholeLen is how long a file may be of which all is read where more than the head is needed, at once where that is known before: another
	// read takes longer than copying what lies between.
	WholeLen = 32 << 10
	// MaxRead bounds one read, whatever a header asks for.
	MaxRead = 4 << 20
)

// File is one encoded file, on disk or in memory, read at offsets with short, bounded reads.
type File struct {
	fd      handle
	Folders *Folders // may be nil
	// SizeOnly lets Open tell no more of a file than its size, not when it was changed, where that is quicker.
	SizeOnly bool
	start    int64  // where it begins in the file on disk, 0 unless it is a section
	limit    int64  // bytes of a section, 0 for the file to its end
	Size     int64  // bytes in all
	Head     []byte // the first bytes; all of them when whole
	whole    bool   // head is everything: nothing more to read
	Err      error  // the first read error
	rest     uint32 // checksum of what was read behind the head
	telling  bool   // that is not dull
	heap     [WholeLen]byte
	more     []byte // scratch for reads behind the head
}

// reset forgets the file before.
func (s *File) reset() {
	s.fd, s.Size, s.Head, s.whole, s.Err, s.rest, s.telling = noFile, 0, nil, false, nil, 0, false
}

// Hold takes a whole file in memory.
func (s *File) Hold(b []byte) {
	s.fd, s.Size, s.Head, s.whole, s.Err = noFile, int64(len(b)), b, true, nil
}

// Section lets the file to be opened be size bytes from start on of the one on disk; size 0 is to its end.
func (s *File) Section(start, size int64) { s.start, s.limit = start, size }

// begin reads the head of the file that was opened, whose size is known: so much of it, 0 for what suits most. HeadLen is for files whose
// end will be needed too.
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
	s.whole = s.Size <= first
}

// Scratch is how many bytes were needed for reads behind the head.
func (s *File) Scratch() int { return cap(s.more) }

// At gives up to n bytes from off, fewer at the end of the file. They are valid until the next call.
func (s *File) At(off int64, n int) []byte {
	if 0 <= off && off < s.Size && n > 0 {
		s.extend(off + min(int64(n), s.Size-off, MaxRead))
	}
	return s.Alone(off, n)
}

// Alone is At for bytes near which no others will be wanted: what lies before them is never read along. Copying what nobody looks at takes longer
// than another read, from some kilobytes on.
func (s *File) Alone(off int64, n int) []byte {
	if off < 0 || off >= s.Size || n <= 0 {
		return nil
	}
	n = int(min(int64(n), s.Size-off, MaxRead))
	if end := off + int64(n); end <= int64(len(s.Head)) {
		return s.Head[off:end]
	}
	if s.whole { // the file shrank since its size was taken
		return s.Head[min(off, int64(len(s.Head))):]
	}
	if cap(s.more) < n {
		s.more = make([]byte, max(n, 2*HeadLen))
	}
	found := s.more[:s.pread(s.more[:n], off)]
	s.mark(found)
	return found
}

// extend reads more of the head: up to a byte, and some behind it; of a short file all. It says no when there was none to read.
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
	if s.whole || have >= min(to, want) {
		return false
	}
	more := s.pread(s.heap[have:want], have)
	s.mark(s.heap[have : have+int64(more)])
	s.Head = s.heap[:have+int64(more)]
	return more > 0
}

// markLen is as much of the end of each read behind the head as marks the file.
const markLen = 1 << 10

// Mark lets the digest tell files apart by what begins at off, behind a tag, where that is part of the head.
func (s *File) Mark(off int64) {
	if end := off + markLen; end <= int64(len(s.Head)) {
		s.mark(s.Head[off:end])
	}
}

// mark notes what was read behind the head.
func (s *File) mark(b []byte) {
	b = b[max(0, len(b)-markLen):]
	s.rest = crc32.Update(s.rest, castagnoli, b)
	s.telling = s.telling || !dull(b)
}
