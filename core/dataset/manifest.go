package dataset

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// columns are the names of the field that holds the path, the first that is there. Case does not matter.
var columns = []string{"audio_filepath", "audio", "path", "file", "wav", "filename"}

const (
	maxLine      = 16 << 20 // bytes of one line, or one CSV record
	maxBadStart  = 1000     // bad lines before the first good one: then it is no manifest
	readAtOnce   = 1 << 16
	manifestKind = ".jsonl, .json or .ndjson (one JSON object a line), .csv or .tsv"
)

// manifest is one that is being read.
type manifest struct {
	ctx     context.Context
	path    string
	folder  string // relative paths are against it
	in      *bufio.Reader
	entries []entry
	good    int
}

// readManifest lists the paths in a manifest; relative ones are against its folder. By extension:
//   - .jsonl, .json, .ndjson: one JSON object a line with the path in one of the columns (NeMo, ESPnet, Hugging Face);
//   - .csv: comma-separated with a header line, quoted as in RFC 4180;
//   - .tsv: tab-separated with a header line and no quoting (Common Voice), though a quoted path is unquoted.
//
// A byte order mark, CRLF and empty lines do not matter. A bad line becomes a stray that names it; a manifest without any
// path column is an error that names the columns it has.
func readManifest(ctx context.Context, path string) ([]entry, error) {
	read := map[string]func(*manifest) error{
		".jsonl": (*manifest).jsonLines, ".json": (*manifest).jsonLines, ".ndjson": (*manifest).jsonLines,
		".csv": (*manifest).csv, ".tsv": (*manifest).tsv,
	}[strings.ToLower(filepath.Ext(path))]
	if read == nil {
		return nil, fault.New(fault.Unsupported, "use "+manifestKind, "manifest %s has none of the known extensions", audio.Printable(path))
	}
	st, err := os.Stat(path) // before it is opened: a pipe would block
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, fault.Wrap(bare(err), fault.NotFound, "check the path", "manifest %s", audio.Printable(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(bare(err), fault.NotFound, "check its permissions", "manifest %s", audio.Printable(path))
	}
	defer f.Close()
	m := manifest{ctx: ctx, path: path, folder: filepath.Dir(path), in: bufio.NewReaderSize(f, readAtOnce)}
	if err := m.skipMark(); err != nil {
		return nil, err
	}
	if err := read(&m); err != nil {
		return nil, err
	}
	return m.entries, nil
}

// skipMark skips a UTF-8 byte order mark and refuses UTF-16, which spreadsheets call "Unicode text".
func (m *manifest) skipMark() error {
	head, _ := m.in.Peek(3) // a read error shows again at the first line
	switch {
	case string(head) == "\xef\xbb\xbf":
		_, _ = m.in.Discard(3)
	case strings.HasPrefix(string(head), "\xff\xfe"), strings.HasPrefix(string(head), "\xfe\xff"):
		return fault.New(fault.Unsupported, "save it as UTF-8", "manifest %s is UTF-16", audio.Printable(m.path))
	}
	return nil
}

// add takes the path that a line gives.
func (m *manifest) add(path string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(m.folder, path)
	}
	m.entries = append(m.entries, entry{path: path})
	m.good++
}

// bad notes a line that gives none, as "manifest.jsonl:17". The error is that it cannot be a manifest.
func (m *manifest) bad(line int, format string, args ...any) error {
	m.entries = append(m.entries, stray(m.path+":"+strconv.Itoa(line), format, args...))
	if m.good == 0 && len(m.entries) >= maxBadStart {
		return fault.New(fault.Corrupt, "use "+manifestKind, "manifest %s: its first %d lines are bad, the first: %s", audio.Printable(m.path), maxBadStart, m.entries[0].clip.Error)
	}
	return nil
}

// missing is the error of a manifest without a path column.
func (m *manifest) missing(found []string) error {
	var quoted []string
	for _, f := range found[:min(len(found), 30)] {
		quoted = append(quoted, strconv.Quote(f[:min(len(f), 64)]))
	}
	shown := strings.Join(quoted, ", ")
	return fault.New(fault.InvalidArgument, "name the column with the paths one of: "+strings.Join(columns, ", "),
		"manifest %s has no column with paths; columns found: %s", audio.Printable(m.path), shown)
}

// pathColumn finds the path column in a header.
func pathColumn(header []string) int {
	for _, c := range columns {
		if i := slices.IndexFunc(header, func(h string) bool { return strings.EqualFold(strings.TrimSpace(h), c) }); i >= 0 {
			return i
		}
	}
	return -1
}

// eachLine calls do with every line that is not blank, without its line end, until do fails. Line numbers start at 1. A line
// over maxLine bytes is noted as bad and skipped.
func (m *manifest) eachLine(do func(number int, line []byte) error) error {
	for number := 1; ; number++ {
		if m.ctx.Err() != nil {
			return cancelled(m.ctx, "reading "+audio.Printable(m.path))
		}
		line, long, err := m.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return fault.Wrap(bare(err), fault.NotFound, "check the disk and the mount", "reading %s", audio.Printable(m.path))
		}
		var failed error
		if long {
			failed = m.bad(number, "line is longer than %d MiB", maxLine>>20)
		} else if len(strings.TrimSpace(string(line))) > 0 {
			failed = do(number, line)
		}
		if failed != nil || err != nil {
			return failed
		}
	}
}

// line reads up to the next line end; what it gives is valid until the next call. long says that the rest was skipped.
func (m *manifest) line() (line []byte, long bool, err error) {
	line, err = m.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = append([]byte(nil), line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if m.ctx.Err() != nil { // seen by the caller
				return nil, true, nil
			}
			var more []byte
			more, err = m.in.ReadSlice('\n')
			if long = long || len(line)+len(more) > maxLine; !long {
				line = append(line, more...)
			}
		}
	}
	line = line[:len(line)-trailing(line)]
	return line, long, err
}

// trailing counts the bytes of the line end.
func trailing(line []byte) int {
	n := 0
	for n < len(line) && n < 2 && (line[len(line)-1-n] == '\n' || line[len(line)-1-n] == '\r') {
		n++
	}
	return n
}
