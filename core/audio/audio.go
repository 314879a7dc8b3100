// Package audio tells how long an audio file plays, from its header and its last bytes: nothing is decoded, and little is
// read. One file per format; a new format is one file and one row in the table of format.go.
//
// The duration is what the file holds. A header that claims something else is reported beside it, never believed.
package audio

import (
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// File reads the regular file at path and gives its size in bytes too, which is known even when the audio is not.
// Errors are *fault.Error: NotFound when it is missing, unreadable or no regular file, Corrupt when it breaks its format or
// holds no audio, Unsupported when its format or codec is not handled. Every message starts with the path.
func File(path string) (Info, int64, error) {
	s := sources.Get().(*source)
	defer sources.Put(s)
	info, st, err := s.file(path, false, nil)
	return info, max(st.Size, 0), err
}

// Look asks the system about the regular file at path, without opening it; errors are those of File.
func Look(path string) (Stat, error) {
	st, err := look(path)
	if err != nil {
		return st, named(path, missing(err))
	}
	return st, nil
}

// Reader reads many files, one after another: it keeps its buffers, and the folders that it came by open.
type Reader struct {
	source  source
	folders folders
}

// NewReader makes one of as many that work side by side.
func NewReader(readers int) Reader { return Reader{folders: folders{limit: share(readers)}} }

// File is the File of this package that spares a question to the system where the answer is known: listed says that the
// folder of path has it as a regular file, known is what Look said a moment ago. The Stat's size is negative when the file
// cannot be opened.
func (r *Reader) File(path string, listed bool, known *Stat) (Info, Stat, error) {
	r.source.folders = &r.folders
	return r.source.file(path, listed, known)
}

// Close lets go of the folders. The reader can be used again.
func (r *Reader) Close() { r.folders.close() }

func (s *source) file(path string, listed bool, known *Stat) (Info, Stat, error) {
	st := unknownStat
	if known != nil {
		st = *known
	}
	if err := s.open(path, listed, firstRead[ending(path)], &st); err != nil {
		return Info{}, st, named(path, missing(err))
	}
	defer s.close()
	info, err := parse(s)
	st.Digest = s.digest()
	switch {
	case s.err != nil: // whatever the parser made of the bytes that did arrive
		return Info{}, st, named(path, refused(fault.NotFound, "check the disk and the mount", "cannot be read: %w", s.err))
	case err != nil:
		return Info{}, st, named(path, err)
	}
	return info, st, nil
}

func missing(err error) error {
	return refused(fault.NotFound, "check the path and its permissions", "%w", err)
}

// Bytes does the same for a whole encoded file in memory; name is for the messages. b is not kept.
func Bytes(name string, b []byte) (Info, error) {
	s := sources.Get().(*source)
	defer sources.Put(s)
	s.hold(b)
	info, err := parse(s)
	s.hold(nil)
	if err != nil {
		return Info{}, named(name, err)
	}
	return info, nil
}

// sources keeps read buffers, so that a scan of a million files allocates a few.
var sources = sync.Pool{New: func() any { return new(source) }}
