// Package audio tells how long an audio file plays, from its header and its last bytes: nothing is decoded, and little is
// read. One file per format; a new format is one file and one row in the table of format.go.
//
// The duration is what the file holds. A header that claims something else is reported beside it, never believed.
package audio

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Info is what the header of one file, and where needed its end, say.
type Info struct {
	DurationS  float64  // playable seconds that the file really holds; finite and > 0
	ClaimedS   *float64 // seconds that the header claims, only when the file holds something else
	SampleRate int      // Hz, of the first stream where several are chained; > 0. 48000 for every Opus file, as decoders give it
	Channels   int      // > 0
	Bits       int      // per sample as stored; 0 for Vorbis, Opus and Speex, which have none
	Codec      string   // FFmpeg's name: "pcm_s16le", "pcm_f32le", "adpcm_ima_wav", "flac", "vorbis"
	Method     string   // how DurationS is known: "header", "tail", "walked" or "estimated" (profile.Methods says what they mean)
}

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
	if err := s.open(path, listed, &st); err != nil {
		return Info{}, st, named(path, missing(err))
	}
	defer s.close()
	info, err := s.parse()
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
	s.fd, s.size, s.head, s.whole, s.err = noFile, int64(len(b)), b, true, nil
	info, err := s.parse()
	s.head = nil
	if err != nil {
		return Info{}, named(name, err)
	}
	return info, nil
}

// sources keeps read buffers, so that a scan of a million files allocates a few.
var sources = sync.Pool{New: func() any { return new(source) }}

// reason is why a file cannot be used, without its name.
type reason struct {
	code fault.Code
	hint string
	err  error
}

func (r *reason) Error() string { return r.err.Error() }
func (r *reason) Unwrap() error { return r.err }

func refused(code fault.Code, hint, format string, args ...any) error {
	return &reason{code: code, hint: hint, err: fmt.Errorf(format, args...)}
}

func corrupt(format string, args ...any) error {
	return refused(fault.Corrupt, "make the file again, or leave it out", format, args...)
}

func unsupported(format string, args ...any) error {
	return refused(fault.Unsupported, "convert it: ffmpeg -i INPUT OUTPUT.flac", format, args...)
}

// named puts the file's name in front: the fault that callers see. errors.Unwrap gives the bare reason.
func named(name string, err error) error {
	var r *reason
	if !errors.As(err, &r) {
		return fault.From(err)
	}
	return fault.Wrap(err, r.code, r.hint, "%s", Printable(name))
}

// Printable makes a file name valid UTF-8, so that it can cross JSON: every byte that is not part of a character becomes
// its \xNN escape.
func Printable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}

// finish checks what every format must have and turns samples per channel into seconds. claimed may be 0: no claim.
func finish(info Info, held, claimed int64) (Info, error) {
	return finishAt(info, held, claimed, int64(info.SampleRate))
}

// finishAt does the same for a format whose clock is not its sample rate: held and claimed count clock ticks.
func finishAt(info Info, held, claimed, perSecond int64) (Info, error) {
	switch {
	case info.SampleRate <= 0:
		return Info{}, corrupt("has a sample rate of 0 Hz")
	case info.Channels <= 0:
		return Info{}, corrupt("has 0 channels")
	case held <= 0 && claimed > 0:
		return Info{}, corrupt("holds no audio, though its header claims %.3f s", float64(claimed)/float64(perSecond))
	case held <= 0:
		return Info{}, corrupt("holds no audio")
	}
	info.DurationS = float64(held) / float64(perSecond)
	if claimed > 0 && claimed != held {
		seconds := float64(claimed) / float64(perSecond)
		info.ClaimedS = &seconds
	}
	return info, nil
}
