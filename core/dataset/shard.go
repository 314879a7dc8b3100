package dataset

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// maxText bounds what is read of one member that says what is said.
const maxText = 1 << 20

// tarMember is an audio file inside a tar archive, measured where it lies.
type tarMember struct {
	shard       string
	start, size int64
}

func (m *tarMember) measure(r *row) (media.Info, error) {
	if r.size = m.size; m.size == 0 { // to audio.Section, 0 is no limit
		return media.Info{}, media.Corrupt("is empty")
	}
	return audio.Section(m.shard, r.path, m.start, m.size)
}

// shardReader lists one archive. Members that share a key, their name up to the first dot, belong
// together (WebDataset).
type shardReader struct {
	path    string
	in      *jumper
	tar     *tar.Reader
	request *Request
	entries []entry
	keys    []string           // of the entries, when texts are wanted
	texts   map[string]*string // by key
	members int
	end     int64 // of the last member, with its padding
}

// readShard lists the audio of one tar archive, with what is said in members beside it when that is
// asked for. An archive that cannot be read, or not to its end, leaves a stray. The error is that
// of storage that does not answer.
func readShard(ctx context.Context, name string, r *Request) ([]entry, error) {
	in, err := openJumper(name)
	switch {
	case media.Unanswered(err):
		return nil, err
	case err != nil:
		return []entry{stray(name, "%v", bare(err))}, nil
	}
	defer in.file.Close()
	s := shardReader{path: name, in: in, tar: tar.NewReader(in), request: r,
		texts: map[string]*string{}}
	if problem := s.read(ctx); in.lost != nil {
		return nil, in.lost
	} else if problem != "" {
		s.entries = append(s.entries, stray(name, "%s", problem))
	}
	for i, key := range s.keys {
		s.entries[i].more.text = s.texts[key]
	}
	return s.entries, nil
}

// read goes through the members and says what went wrong.
func (s *shardReader) read(ctx context.Context) string {
	content := media.Contents(s.in.head())
	if strings.HasPrefix(content, "compressed ") {
		return "is " + content + "; unpack it once: audio hardly compresses"
	}
	for ctx.Err() == nil {
		h, err := s.tar.Next()
		switch {
		case errors.Is(err, io.EOF) && (s.in.at == 0 || s.in.at > s.end && s.in.endMark()):
			return ""
		case errors.Is(err, io.EOF):
			return fmt.Sprintf(
				"ends after member %d without an end-of-archive marker: it may be truncated",
				s.members)
		case err != nil && s.members == 0:
			return "is not a tar archive: its content is " + content
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Sprintf("is truncated after member %d", s.members)
		case err != nil:
			return fmt.Sprintf("cannot be read after member %d: %v", s.members, err)
		}
		s.members++
		s.end = s.in.at + (h.Size+511)&^511
		s.take(h)
	}
	return ""
}

// take notes one member. What macOS and editors drop is skipped, as in folders.
func (s *shardReader) take(h *tar.Header) {
	base := path.Base(h.Name)
	isAudio := audio.HasExtension(base)
	if strings.HasPrefix(base, ".") || h.Typeflag == tar.TypeDir || !isAudio && !s.request.Texts {
		return
	}
	name := s.path + "/" + strings.TrimPrefix(h.Name, "./")
	stem, extension, _ := strings.Cut(base, ".")
	key := strings.TrimSuffix(h.Name, base) + stem
	switch {
	case !isAudio:
		if text := s.said(h, key, extension); text != nil {
			s.texts[key] = text
		}
		return
	case h.Typeflag == tar.TypeGNUSparse, h.PAXRecords["GNU.sparse.major"] != "",
		h.PAXRecords["GNU.sparse.map"] != "":
		s.entries = append(s.entries, stray(name,
			"is stored with holes (GNU sparse); make the archive again without --sparse"))
	case h.Typeflag != tar.TypeReg:
		s.entries = append(s.entries, stray(name,
			"is a link or not a file; make the archive again with --hard-dereference "+
				"--dereference"))
	default:
		e := entry{path: name, more: &detail{by: &tarMember{s.path, s.in.at, h.Size}}}
		s.entries = append(s.entries, e)
	}
	if s.request.Texts {
		s.keys = append(s.keys, key)
		if last := &s.entries[len(s.entries)-1]; last.more == nil {
			last.more = new(detail)
		}
	}
}

// said reads what is said from a member: the whole of a .txt, or a field of a .json; or of the
// extension that was named. A .txt goes before a .json of the same key.
func (s *shardReader) said(h *tar.Header, key, extension string) *string {
	field := s.request.TextField
	isText := extension == "txt" && field == "" || extension == field
	if h.Size > maxText || h.Typeflag != tar.TypeReg || !isText && extension != "json" {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(s.tar, maxText))
	if err != nil {
		return nil
	}
	if isText {
		text := strings.TrimSpace(string(b))
		return &text
	}
	row, err := objectOf(b)
	if earlier := s.texts[key]; earlier != nil || !json.Valid(b) || err != nil {
		return earlier
	}
	return textOf(row.field(either(field, textColumns)...))
}

// jumper reads an archive through a small window, so that a member is jumped over without being
// read.
type jumper struct {
	file   *os.File
	at     int64 // where the next Read is
	from   int64 // of the window
	window []byte
	lost   error // of storage that did not answer; nil while it does
	space  [4096]byte
}

func openJumper(name string) (*jumper, error) {
	if st, err := os.Stat(name); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() { // a pipe would block
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(name)
	return &jumper{file: f}, err
}

func (j *jumper) Read(p []byte) (int, error) {
	if j.at < j.from || j.at >= j.from+int64(len(j.window)) {
		n, err := j.file.ReadAt(j.space[:], j.at)
		if media.Unanswered(err) {
			j.lost = err
		}
		if n == 0 {
			return 0, err
		}
		j.from, j.window = j.at, j.space[:n]
	}
	n := copy(p, j.window[j.at-j.from:])
	j.at += int64(n)
	return n, nil
}

// Seek goes forward from where it is: all that the tar package asks for.
func (j *jumper) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || offset < 0 || offset > math.MaxInt64-j.at {
		return 0, errors.New("a size that no file has")
	}
	j.at += offset
	return j.at, nil
}

func (j *jumper) head() []byte {
	b := make([]byte, 64)
	n, _ := j.file.ReadAt(b, 0) // an error shows as nothing
	return b[:n]
}

// endMark reports whether a block of zeros was read last.
func (j *jumper) endMark() bool {
	var block [512]byte
	n, _ := j.file.ReadAt(block[:], j.at-512) // an error shows as fewer bytes
	return n == 512 && block == [512]byte{}
}
