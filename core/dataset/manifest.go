package dataset

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	maxLine      = 16 << 20 // bytes of one line, or one CSV record
	maxBadStart  = 1000     // bad lines before the first good one: then it is not a manifest
	readAtOnce   = 1 << 16  // bytes
	triedPaths   = 32       // paths that are looked for to decide their folder and ending
	manifestKind = ".jsonl, .json or .ndjson (JSON objects, one a line or in one array), .csv or " +
		".tsv, .txt or .lst (one path a line), " +
		".scp, segments or utt2dur (Kaldi); each also with .gz"
)

// manifest is a manifest while it is read: a reader of its format calls add, addUnmeasured or bad
// for each line.
type manifest struct {
	ctx     context.Context
	path    string
	folder  string // of the manifest
	file    *os.File
	in      *bufio.Reader
	lines   *bufio.Scanner               // of in, nil before the first line
	number  int                          // of the line read last, from 1
	wanted  Request                      // zero of a keyed table beside the manifest (Kaldi)
	listing *Table                       // gets the rows of a listing; nil without one
	entries []entry                      // one for each line that is not blank, the bad ones too
	good    int                          // how many entries are clips
	files   map[string]*measuredFile     // files that rows cut pieces out of, by path
	tables  map[string]map[string]string // keyed tables that were read, by name (Kaldi)
}

// usualFolders are those in a manifest's own folder that its clips may lie in, and usualEndings
// what its names may lack.
var (
	usualFolders = []string{"", "clips", "wavs", "wav", "audio", "data"}
	usualEndings = []string{"", ".wav", ".flac", ".mp3", ".opus"}
)

// manifestReaders are by extension; Kaldi's files without one go by their whole name.
var manifestReaders = map[string]func(*manifest) error{
	".jsonl": (*manifest).jsonLines, ".json": (*manifest).jsonLines,
	".ndjson": (*manifest).jsonLines,
	".csv":    func(m *manifest) error { return m.rows(false) },
	".tsv":    func(m *manifest) error { return m.rows(true) },
	".scp":    (*manifest).scp,
	".txt":    (*manifest).list, ".lst": (*manifest).list, ".list": (*manifest).list,
	"segments": (*manifest).segments, "utt2dur": (*manifest).durations,
	"reco2dur": (*manifest).durations,
}

// readManifest lists the clips in a manifest, with absolute paths (see resolvePaths). The format
// follows from the extension:
//   - .jsonl, .json, .ndjson: one JSON object a line, or an array of them, with the path in one of
//     the columns (NeMo, ESPnet, Hugging Face), or Lhotse's cuts and recordings;
//   - .csv: a header line and rows, divided by one of the delimiters and quoted as in RFC 4180 (see
//     records), or without a header (see headless);
//   - .tsv: tab-separated with a header line, where a quotation mark mostly belongs to the text
//     (Common Voice); or with the folder alone in the first line (fairseq);
//   - .txt, .lst: one path a line; .scp, segments, utt2dur: Kaldi.
//
// A row may cut a piece out of a file (see piece). A byte order mark, CRLF and empty lines do not
// matter. A bad line becomes a stray that names it. A manifest without any path column is an error
// that names the columns it has; a text that is not UTF-8 is an error, too.
//
// The name is that of what was read: with its split, where rows of others were left out.
func readManifest(ctx context.Context, path string, r Request) (entries []entry, name string,
	err error) {
	plain := strings.TrimSuffix(strings.ToLower(path), ".gz")
	read := manifestReaders[filepath.Ext(plain)]
	if read == nil {
		read = manifestReaders[filepath.Base(plain)]
	}
	if read == nil {
		return nil, "", fault.New(fault.Unsupported, "use "+manifestKind,
			"manifest %s has none of the known extensions", fault.Printable(path))
	}
	m, err := openManifest(ctx, path)
	if err != nil {
		return nil, "", err
	}
	defer m.file.Close()
	m.wanted, m.listing = r, r.table
	if len(r.Splits) > 0 {
		m.listing = &Table{wanted: []string{splitColumn}}
	}
	if err := m.checkEncoding(); err != nil {
		return nil, "", err
	}
	if err := read(m); err != nil {
		return nil, "", err
	}
	if err := m.resolvePaths(); err != nil {
		return nil, "", err
	}
	entries, only := keepSplits(m.entries, r.Splits)
	return entries, path + only, nil
}

// openManifest opens a regular file for reading line by line, through gzip when its name says so.
func openManifest(ctx context.Context, path string) (*manifest, error) {
	st, err := os.Stat(path) // before it is opened: a pipe would block
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, fault.Wrap(bare(err), fault.NotFound, "check the path", "manifest %s",
			fault.Printable(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(bare(err), fault.NotFound, "check its permissions",
			"manifest %s", fault.Printable(path))
	}
	m := &manifest{ctx: ctx, path: path, folder: filepath.Dir(path), file: f,
		files: map[string]*measuredFile{}, tables: map[string]map[string]string{}}
	var in io.Reader = f
	if strings.EqualFold(filepath.Ext(path), ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			_ = f.Close() // only read from
			return nil, fault.Wrap(err, fault.Corrupt, "recreate it, or unpack it",
				"manifest %s", fault.Printable(path))
		}
	}
	m.in = bufio.NewReaderSize(in, readAtOnce)
	return m, nil
}

// broken is the error of a manifest that cannot be read to its end.
func (m *manifest) broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) ||
		errors.As(err, new(flate.CorruptInputError)) {
		return fault.Wrap(err, fault.Corrupt, "recreate it", "manifest %s is truncated or damaged",
			fault.Printable(m.path))
	}
	return fault.Wrap(bare(err), fault.NotFound, "check the disk and the mount", "reading %s",
		fault.Printable(m.path))
}

// checkEncoding skips a UTF-8 byte order mark. It refuses UTF-16, which spreadsheets call "Unicode
// text", and the line ends of old Macintosh files.
func (m *manifest) checkEncoding() error {
	head, _ := m.in.Peek(readAtOnce) // a read error shows again at the first line
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = m.in.Discard(3)
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return fault.New(fault.Unsupported, "save it as UTF-8", "manifest %s is UTF-16",
			fault.Printable(m.path))
	case bytes.IndexByte(head, '\n') < 0 && bytes.IndexByte(bytes.TrimRight(head, "\r"), '\r') >= 0:
		return fault.New(fault.Unsupported, "save it with the line ends of Windows or Unix",
			"manifest %s ends its lines with CR alone", fault.Printable(m.path))
	}
	return nil
}

// checkText refuses a text that is not UTF-8: letters would be lost from it, silently.
func (m *manifest) checkText(line int, text []byte) error {
	if utf8.Valid(text) {
		return nil
	}
	name, wrong := fault.Printable(m.path), text[bytes.IndexRune(text, utf8.RuneError)]
	return fault.New(fault.Corrupt,
		"save it as UTF-8 (in Excel: CSV UTF-8), or convert it: iconv -f WINDOWS-1252 -t UTF-8 "+
			"IN > OUT",
		"manifest %s, line %d: the text is not UTF-8 (byte 0x%02x)", name, line, wrong)
}

// mention is what one line holds of one clip.
type mention struct {
	path    string
	text    *string // nil where none is wanted, or the line has none
	cut     bool    // only seconds from offset on, of the file at path
	offset  float64
	seconds float64   // 0: to the end
	extra   []*string // of the columns that a listing asks for
}

// add adds a clip whose file is to be measured. Its path stays as it is until resolvePaths has all.
func (m *manifest) add(r mention) {
	e := entry{path: r.path}
	if r.text != nil || r.cut || r.extra != nil {
		e.more = &detail{text: r.text, extra: r.extra}
	}
	if r.cut {
		file := m.files[r.path]
		if file == nil {
			file = new(measuredFile)
			m.files[r.path] = file
		}
		e.more.by = &segment{file, r.offset, r.seconds}
	}
	m.entries = append(m.entries, e)
	m.good++
}

// addUnmeasured adds a clip whose duration is taken from the manifest, as there is no file to
// measure.
func (m *manifest) addUnmeasured(name string, seconds float64, rate int, text *string) {
	m.entries = append(m.entries, entry{clip: &profile.Clip{Path: name, DurationS: &seconds,
		SampleRate: rate, Method: "given"}, more: &detail{text: text}})
	m.good++
}

// bases are the folders that relative paths may count from: the manifest's or a usual one in it,
// the working folder, or the folder two above the manifest's (Kaldi's recipes list paths from
// there).
func (m *manifest) bases() (bases []string) {
	for _, sub := range usualFolders {
		bases = append(bases, filepath.Join(m.folder, sub))
	}
	return append(bases, ".", filepath.Join(m.folder, "..", ".."))
}

// resolvePaths makes relative paths absolute, and completes names that lack their ending
// (LJSpeech). They are relative to whichever of the bases has most of the first few.
func (m *manifest) resolvePaths() error {
	var tried []string
	bases := m.bases()
	for i := 0; i < len(m.entries) && len(tried) < triedPaths; i++ {
		if e := &m.entries[i]; e.clip == nil {
			tried = append(tried, e.path)
		}
	}
	base, ending, highest := m.folder, "", 0
	for _, suffix := range usualEndings {
		for _, b := range bases {
			if count := countFiles(b, suffix, tried, highest); count > highest {
				base, ending, highest = b, suffix, count
			}
		}
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return fault.Wrap(bare(err), fault.NotFound, "change to a folder that exists",
			"the working folder")
	}
	for i := range m.entries {
		if e := &m.entries[i]; e.clip == nil {
			e.path = resolve(base, e.path) + ending
		}
	}
	return nil
}

// resolve returns path, relative to base unless it is absolute.
func resolve(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}

// countFiles counts the paths that exist; it returns 0 as soon as they cannot be more than needed.
func countFiles(base, ending string, paths []string, needed int) (count int) {
	for i, path := range paths {
		if count+len(paths)-i <= needed {
			return 0
		}
		if _, err := os.Stat(resolve(base, path) + ending); err == nil {
			count++
		}
	}
	return count
}

// bad adds a stray for a line that holds no clip, as "manifest.jsonl:17". It returns an error when
// there are so many of them, and no clip yet, that the file is no manifest.
func (m *manifest) bad(line int, format string, args ...any) error {
	m.entries = append(m.entries, stray(m.path+":"+strconv.Itoa(line), format, args...))
	if m.good == 0 && len(m.entries) >= maxBadStart {
		return fault.New(fault.Corrupt, "use "+manifestKind,
			"manifest %s: its first %d lines are bad, the first: %s", fault.Printable(m.path),
			maxBadStart, m.entries[0].clip.Error)
	}
	return nil
}

// eachLine calls do with every line that is not blank, without its line end, until do fails. Line
// numbers start at 1.
func (m *manifest) eachLine(do func(number int, line []byte) error) error {
	for {
		line, ok, err := m.line()
		if err != nil || !ok {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := do(m.number, line); err != nil {
				return err
			}
		}
	}
}

// line reads the next line, which is valid until the next call; ok is false after the last.
func (m *manifest) line() (line []byte, ok bool, err error) {
	if m.ctx.Err() != nil {
		return nil, false, cancelled(m.ctx, "reading "+fault.Printable(m.path))
	}
	if m.lines == nil {
		m.lines = bufio.NewScanner(m.in)
		m.lines.Buffer(make([]byte, 0, readAtOnce), maxLine)
	}
	if m.lines.Scan() {
		m.number++
		return m.lines.Bytes(), true, nil
	}
	switch err := m.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, false, fault.New(fault.Corrupt, "write one clip a line",
			"manifest %s: line %d is longer than %d MiB", fault.Printable(m.path), m.number+1,
			maxLine>>20)
	case err != nil:
		return nil, false, m.broken(err)
	}
	return nil, false, nil
}

// list reads one path a line. A line with further columns, such as wav2letter's "id path duration
// words", holds it in the first column with the extension of an audio file.
func (m *manifest) list() error {
	return m.eachLine(func(_ int, line []byte) error {
		path := strings.TrimSpace(string(line))
		if !audio.HasExtension(path) {
			for _, field := range strings.Fields(path) {
				if audio.HasExtension(field) {
					path = field
					break
				}
			}
		}
		m.add(mention{path: path})
		return nil
	})
}
