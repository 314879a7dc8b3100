package dataset

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func isThere(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// seconds reads a number, which some tools write as text; 0 when it is absent.
func seconds(raw json.RawMessage) (float64, error) {
	if !isThere(raw) {
		return 0, nil
	}
	s, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || !(s >= 0 && s <= maxClipS) {
		return 0, fmt.Errorf("%.40s is not a number of seconds", raw)
	}
	return s, nil
}

// piece is the part of a file that a row selects by offset and duration, or by start and end.
func piece(offset, duration, start, end json.RawMessage) (r mention, err error) {
	switch {
	case isThere(offset):
		from, errFrom := seconds(offset)
		length, errLength := seconds(duration)
		return mention{cut: true, offset: from, seconds: length}, errors.Join(errFrom, errLength)
	case isThere(start) && isThere(end):
		from, errFrom := seconds(start)
		to, errTo := seconds(end)
		if err = errors.Join(errFrom, errTo); err == nil && !(from < to) {
			err = fmt.Errorf("it selects %g s to %g s", from, to)
		}
		return mention{cut: true, offset: from, seconds: to - from}, err
	}
	return mention{}, nil
}

type object struct{ fields map[string]json.RawMessage }

func objectOf(line []byte) (o object, err error) {
	err = json.Unmarshal(line, &o.fields)
	return o, err
}

// field returns the value of the first of the names that is there, exactly so or in another case.
func (o object) field(names ...string) json.RawMessage {
	for _, name := range names {
		if raw := o.fields[name]; isThere(raw) {
			return raw
		}
		for other, raw := range o.fields {
			if strings.EqualFold(other, name) && isThere(raw) {
				return raw
			}
		}
	}
	return nil
}

func (m *manifest) jsonLines() error {
	if head, _ := m.in.Peek(64); bytes.HasPrefix(bytes.TrimSpace(head), []byte("[")) {
		return m.jsonArray()
	}
	return m.eachLine(m.jsonRow)
}

// jsonArray reads one array of rows, whose numbers count instead of lines.
func (m *manifest) jsonArray() error {
	in := &bounded{in: m.in, left: maxLine}
	rows := stdjson.NewDecoder(in)
	_, err := rows.Token()
	for number := 1; err == nil && rows.More(); number++ {
		if m.ctx.Err() != nil {
			return cancelled(m.ctx, "reading "+fault.Printable(m.path))
		}
		in.left = maxLine
		var row stdjson.RawMessage
		if err = rows.Decode(&row); err == nil {
			if err := m.jsonRow(number, row); err != nil {
				return err
			}
		}
	}
	var end, behind stdjson.Token
	if err == nil {
		end, _ = rows.Token()
		behind, err = rows.Token()
	}
	if end != stdjson.Delim(']') || behind != nil || !errors.Is(err, io.EOF) {
		return fault.New(fault.Corrupt, "write one JSON object a line",
			"manifest %s: its JSON array cannot be read after row %d", fault.Printable(m.path),
			len(m.entries))
	}
	return nil
}

// errRecordLength is what bounded gives up with.
var errRecordLength = errors.New("a record is too long")

// bounded reads until left bytes are gone: a decoder sets no limit to one value.
type bounded struct {
	in   io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRecordLength
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (m *manifest) jsonRow(number int, line []byte) error {
	row, err := objectOf(line)
	if err != nil {
		return m.bad(number, "not a JSON object")
	}
	m.listing.names(row)
	raw := row.field(either(m.wanted.AudioField, audioColumns)...)
	if raw == nil {
		return m.withoutPath(number, line, row)
	}
	path := pathIn(raw)
	if path == "" {
		return m.bad(number, "its path is not text: %.80s", raw)
	}
	r, err := row.piece()
	if err != nil {
		return m.bad(number, "%s: %v", path, err)
	}
	r.path = path
	text := row.field(either(m.wanted.TextField, textColumns)...)
	if err := m.checkText(number, text); err != nil {
		return err
	}
	if m.wanted.Texts {
		r.text = textOf(text)
	}
	if m.listing != nil {
		for _, name := range m.listing.wanted {
			r.extra = append(r.extra, extraOf(row.field(name)))
		}
	}
	m.add(r)
	return nil
}

// withoutPath takes a row with none of the fields: Lhotse's has another form.
func (m *manifest) withoutPath(number int, line []byte, row object) error {
	if isLhotse, err := m.lhotse(number, line); isLhotse {
		return err
	}
	if len(m.entries) == 0 && len(row.fields) > 0 {
		return m.missing(row.names())
	}
	return m.bad(number, "has no field with a path, called %s",
		strings.Join(either(m.wanted.AudioField, audioColumns[:3]), ", "))
}

// piece says what part of the file is meant. In NeMo's rows, which call the path audio_filepath,
// the duration is what is read of the file, from offset on or from its start; elsewhere a duration
// without an offset only describes the file.
func (o object) piece() (mention, error) {
	offset, duration := o.field("offset"), o.field("duration")
	if offset == nil && duration != nil && o.field("audio_filepath") != nil {
		offset = json.RawMessage("0")
	}
	return piece(offset, duration, o.field("start"), o.field("end"))
}

// pathIn reads a path, alone or in an object as datasets writes it; "" for none.
func pathIn(raw json.RawMessage) (path string) {
	if err := json.Unmarshal(raw, &path); err == nil {
		return path
	}
	var audio struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(raw, &audio); err != nil {
		return ""
	}
	return audio.Path
}

// textOf reads what is said; a number is said as it is written. It is nil where there is none.
func textOf(raw json.RawMessage) *string {
	if !isThere(raw) {
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		return &text
	}
	if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
		return nil
	}
	text = string(raw)
	return &text
}

// extraOf is a value of any other column: a text as it is, all else in JSON.
func extraOf(raw json.RawMessage) *string {
	if text := textOf(raw); text != nil || !isThere(raw) {
		return text
	}
	text := string(raw)
	return &text
}

// header says which columns of a table hold what; -1: none.
type header struct {
	path, text, offset, seconds, start, end int
	columns                                 int   // 0: rows may have any number
	extra                                   []int // of the columns that a listing asks for
}

func (m *manifest) header(names []string) (h header, err error) {
	h = header{
		path:   column(names, either(m.wanted.AudioField, audioColumns)...),
		text:   column(names, either(m.wanted.TextField, textColumns)...),
		offset: column(names, "offset"), seconds: column(names, "duration"),
		start: column(names, "start"), end: column(names, "end"),
		columns: len(names),
	}
	if h.path < 0 {
		return h, m.missing(names)
	}
	if t := m.listing; t != nil {
		t.Columns = names
		for _, name := range t.wanted {
			h.extra = append(h.extra, column(names, name))
		}
	}
	return h, nil
}

func (m *manifest) take(number int, fields []string, r *records) error {
	h := &r.header
	if len(fields) <= h.path || fields[h.path] == "" {
		return m.bad(number, "has no path in column %d of %d", h.path+1, len(fields))
	}
	fields, fits := r.fitted(fields)
	if !fits {
		return m.bad(number, "has %d fields in %d columns: put texts with %q in quotation marks",
			len(fields), h.columns, r.delimiter)
	}
	field := func(i int) *string {
		if i < 0 || i >= len(fields) {
			return nil
		}
		text := strings.Clone(fields[i])
		return &text
	}
	raw := func(i int) json.RawMessage {
		if text := field(i); text != nil {
			return json.RawMessage(strings.TrimSpace(*text))
		}
		return nil
	}
	row, err := piece(raw(h.offset), raw(h.seconds), raw(h.start), raw(h.end))
	if err != nil {
		return m.bad(number, "%s: %v", fields[h.path], err)
	}
	row.path = strings.Clone(fields[h.path])
	text := field(h.text)
	if text != nil {
		if err := m.checkText(number, []byte(*text)); err != nil {
			return err
		}
	}
	if m.wanted.Texts {
		row.text = text
	}
	for _, i := range h.extra {
		row.extra = append(row.extra, field(i))
	}
	m.add(row)
	return nil
}

// fitted returns the fields of a record that has more than the header: those after it are empty, or
// belong to a text in the last column that has the delimiter in it. fits is false where a text
// cannot be told from what follows it.
func (r *records) fitted(fields []string) (_ []string, fits bool) {
	if r.columns == 0 {
		return fields, true
	}
	for len(fields) > r.columns && fields[len(fields)-1] == "" {
		fields = fields[:len(fields)-1]
	}
	if len(fields) <= r.columns {
		return fields, true
	}
	if last := r.columns - 1; r.text == last {
		return append(fields[:last:last], strings.Join(fields[last:], string(r.delimiter))), true
	}
	return fields, r.text < 0 && (r.path == 0 || audio.HasExtension(fields[r.path]))
}

func (m *manifest) rows(tabs bool) error {
	r := &records{m: m}
	head, ok, err := r.filled()
	if !ok || err != nil {
		return err
	}
	r.dialect = dialectOf(head, tabs, either(m.wanted.AudioField, audioColumns))
	names, _ := r.split(head)
	if folder := names[0]; tabs && len(names) == 1 && filepath.IsAbs(folder) {
		// fairseq: then "path, samples" a line
		m.folder, r.header = folder, header{0, -1, -1, -1, -1, -1, 0, nil}
	} else if headless, err := r.headless(head, names); err != nil {
		return err
	} else if headless {
		r.ahead, r.number = append([]string{head}, r.ahead...), r.number-1
	} else if r.header, err = m.header(names); err != nil {
		return err
	}
	for {
		number, fields, ok, err := r.next()
		if !ok || err != nil {
			return err
		}
		if path := r.path; r.literal && path < len(fields) && len(fields[path]) > 2 &&
			fields[path][0] == '"' && strings.HasSuffix(fields[path], `"`) {
			fields[path] = unquoted(fields[path])
		}
		if err := m.take(number, fields, r); err != nil {
			return err
		}
	}
}

// headless reports whether a table has no header: its first line starts with the name of a file
// that exists. The columns are those of LJSpeech, "name|text|normalized text", or a path and a
// text; InvalidArgument where there are others, whose meaning only a header says.
func (r *records) headless(head string, names []string) (bool, error) {
	name, _, barred := strings.Cut(head, "|")
	last, path := strings.Count(head, "|"), names[0]
	switch {
	case column(names, either(r.m.wanted.AudioField, audioColumns)...) >= 0:
		return false, nil
	case barred && r.m.hasFile(name):
		r.dialect = dialect{delimiter: '|', literal: true}
	case !r.m.hasFile(path):
		return false, nil
	case len(names) == 2:
		last = 1
	default:
		return false, fault.New(fault.InvalidArgument,
			"put a line before it that names its columns, those of the file path and the transcript text",
			"manifest %s has no header: its first line has the file %q in %s",
			fault.Printable(r.m.path), fault.Shorten(path), fault.Plural(len(names), "column"))
	}
	r.header = header{0, last, -1, -1, -1, -1, last + 1, nil}
	return true, nil
}

// hasFile reports whether a name of a clip is that of a file.
func (m *manifest) hasFile(name string) bool {
	for _, base := range m.bases() {
		for _, ending := range usualEndings {
			if name != "" && isRegular(resolve(base, name)+ending) {
				return true
			}
		}
	}
	return false
}
