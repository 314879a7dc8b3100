// Package audio measures how long an audio file plays, from its header and its last bytes: it
// decodes nothing and reads little. Formats are grouped in packages by the family of their
// container; this one recognises them by their first bytes (formats.go) and names the file in their
// errors. media has what all of them read from, codec what several of them know of a codec.
//
// The duration is what the file holds. A header that claims something else is reported beside it,
// never believed.
package audio

import (
	"sync"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// File reads the regular file at path. It also returns what the system says of it, even where the
// audio cannot be read; the size is negative when it cannot be opened. Errors are *fault.Error:
// NotFound when it is missing, unreadable or no regular file, Corrupt when it breaks its format or
// holds no audio, Unsupported when its format or codec is not handled. Every message starts with
// the path.
func File(path string) (info media.Info, st media.Stat, err error) {
	return section(path, path, 0, 0)
}

// Look asks the system about the regular file at path, without opening it; errors are those of
// File.
func Look(path string) (media.Stat, error) {
	st, err := media.Look(path)
	if err != nil {
		return st, media.Named(path, missing(err))
	}
	return st, nil
}

func missing(err error) error {
	return media.Refused(fault.NotFound, "check the path and its permissions", "%w", err)
}

// Bytes does the same for a whole encoded file in memory; name is for the messages. b is not kept.
func Bytes(name string, b []byte) (media.Info, error) {
	s := sources.Get().(*media.File)
	defer sources.Put(s)
	s.Hold(b)
	info, err := parse(s)
	s.Hold(nil)
	if err != nil {
		return media.Info{}, media.Named(name, err)
	}
	return info, nil
}

// Section reads the encoded file that lies in size bytes from start on of the regular file at path:
// a member of a tar archive, which need not be unpacked. name is for the messages. What lies behind
// the end of the file is missing from it, as from any truncated file. Errors are those of File.
func Section(path, name string, start, size int64) (info media.Info, err error) {
	info, _, err = section(path, name, start, size)
	return info, err
}

func section(path, name string, start, size int64) (info media.Info, st media.Stat, err error) {
	s := sources.Get().(*media.File)
	defer sources.Put(s)
	s.Section(start, size)
	err = media.Answered(path, func() (err error) {
		if st, err = s.Open(path, firstRead[ending(path)]); err != nil {
			return media.Named(name, missing(err))
		}
		defer s.Close()
		info, err = parse(s)
		if start == 0 && size == 0 {
			st.Digest = s.Digest()
		}
		if s.Err != nil { // whatever the parser made of the bytes that did arrive
			err = media.Refused(fault.NotFound, "check the disk and the mount",
				"cannot be read: %w", s.Err)
		}
		if err != nil {
			info, err = media.Info{}, media.Named(name, err)
		}
		return err
	})
	return info, st, err
}

// sources keeps read buffers, so that a scan of a million files allocates a few.
var sources = sync.Pool{New: func() any { return new(media.File) }}
