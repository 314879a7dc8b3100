package dataset

import (
	stdcsv "encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// jsonRow takes the fields that may hold the path, in the order of columns, and the piece that NeMo's rows cut out.
type jsonRow struct {
	AudioFilepath json.RawMessage `json:"audio_filepath"`
	Audio         json.RawMessage `json:"audio"`
	Path          json.RawMessage `json:"path"`
	File          json.RawMessage `json:"file"`
	Wav           json.RawMessage `json:"wav"`
	Filename      json.RawMessage `json:"filename"`
	Offset        json.RawMessage `json:"offset"`
	Duration      json.RawMessage `json:"duration"`
}

// pathOf gives the first field that is there, nil without one.
func (r *jsonRow) pathOf() json.RawMessage {
	for _, raw := range []json.RawMessage{r.AudioFilepath, r.Audio, r.Path, r.File, r.Wav, r.Filename} {
		if isThere(raw) {
			return raw
		}
	}
	return nil
}

func isThere(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// piece says what part of the file is meant. In NeMo's rows, which call the path audio_filepath, the duration is what is
// read of the file, from offset on or from its start; elsewhere a duration without an offset only describes the file.
func (r *jsonRow) piece() (mention, error) {
	if !isThere(r.Offset) && (!isThere(r.AudioFilepath) || !isThere(r.Duration)) {
		return mention{}, nil
	}
	offset, err := seconds(r.Offset)
	length, errLength := seconds(r.Duration)
	return mention{cut: true, offset: offset, seconds: length}, errors.Join(err, errLength)
}

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

func (m *manifest) jsonLines() error {
	first := true
	return m.eachLine(func(number int, line []byte) error {
		if first && strings.HasPrefix(strings.TrimSpace(string(line[:min(len(line), 64)])), "[") {
			return fault.New(fault.Unsupported, "write one JSON object a line", "manifest %s is one JSON array", fault.Printable(m.path))
		}
		var fields jsonRow
		if err := json.Unmarshal(line, &fields); err != nil {
			return m.bad(number, "not a JSON object")
		}
		raw := fields.pathOf()
		if raw == nil {
			if known, err := m.lhotse(number, line); known {
				first = false
				return err
			}
			if found := fieldNames(line); first && len(found) > 0 {
				return m.missing(found)
			}
			return m.bad(number, "has none of the fields %s", strings.Join(columns, ", "))
		}
		first = false
		var path string
		if err := json.Unmarshal(raw, &path); err != nil || path == "" {
			return m.bad(number, "its path is not text: %.80s", raw)
		}
		r, err := fields.piece()
		if err != nil {
			return m.bad(number, "%s: %v", path, err)
		}
		r.path = path
		if m.texts {
			r.text = fieldText(line, m.field)
		}
		m.add(r)
		return nil
	})
}

// fieldText finds what is said in a JSON object; nil when it does not tell.
func fieldText(object []byte, field string) *string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil
	}
	names := textColumns
	if field != "" {
		names = []string{field}
	}
	for _, name := range names {
		var text *string
		if err := json.Unmarshal(all[name], &text); err == nil && text != nil {
			return text
		}
	}
	return nil
}

func fieldNames(object []byte) []string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(all))
}

// header says which columns of a table hold what; -1: none.
type header struct{ path, text, offset, seconds int }

func (m *manifest) header(names []string) (h header, err error) {
	h = header{column(names, columns...), -1, column(names, "offset"), column(names, "duration")}
	if h.path < 0 {
		return h, m.missing(slices.Clone(names))
	}
	if m.texts && m.field != "" {
		h.text = column(names, m.field)
	} else if m.texts {
		h.text = column(names, textColumns...)
	}
	return h, nil
}

// column finds the first of the wanted names in a header.
func column(names []string, wanted ...string) int {
	for _, w := range wanted {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(strings.TrimSpace(n), w) }); i >= 0 {
			return i
		}
	}
	return -1
}

// take adds what the fields of one record say.
func (m *manifest) take(number int, fields []string, h header) error {
	if len(fields) <= h.path || fields[h.path] == "" {
		return m.bad(number, "has no path in column %d of %d", h.path+1, len(fields))
	}
	field := func(i int) string {
		if i < 0 || i >= len(fields) {
			return ""
		}
		return fields[i]
	}
	r := mention{path: fields[h.path]}
	if h.offset >= 0 && field(h.offset) != "" {
		offset, err := seconds(json.RawMessage(field(h.offset)))
		length, errLength := seconds(json.RawMessage(field(h.seconds)))
		if err = errors.Join(err, errLength); err != nil {
			return m.bad(number, "%s: %v", r.path, err)
		}
		r.cut, r.offset, r.seconds = true, offset, length
	}
	if h.text >= 0 && h.text < len(fields) {
		text := strings.Clone(fields[h.text])
		r.text = &text
	}
	m.add(r)
	return nil
}

func (m *manifest) tsv() error {
	var h *header
	return m.eachLine(func(number int, line []byte) error {
		fields := strings.Split(string(line), "\t")
		if h == nil {
			if folder := fields[0]; len(fields) == 1 && filepath.IsAbs(folder) { // fairseq: then "path, samples" a line
				m.folder, h = folder, &header{0, -1, -1, -1}
				return nil
			}
			found, err := m.header(fields)
			h = &found
			return err
		}
		if len(fields) > h.path {
			if path := fields[h.path]; len(path) > 2 && path[0] == '"' && path[len(path)-1] == '"' {
				fields[h.path] = strings.ReplaceAll(path[1:len(path)-1], `""`, `"`)
			}
		}
		return m.take(number, fields, *h)
	})
}

// errRecordLength is what bounded gives up with.
var errRecordLength = errors.New("a record is too long")

// bounded reads until left bytes are gone: the csv package sets no limit to a record.
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

func (m *manifest) csv() error {
	in := &bounded{in: m.in}
	r := stdcsv.NewReader(in)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	var h *header
	for {
		if m.ctx.Err() != nil {
			return cancelled(m.ctx, "reading "+fault.Printable(m.path))
		}
		in.left = maxLine
		fields, err := r.Read()
		var syntax *stdcsv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errRecordLength):
			return fault.New(fault.Corrupt, "look for a quote that is never closed", "manifest %s has a record longer than %d MiB", fault.Printable(m.path), maxLine>>20)
		case errors.As(err, &syntax):
			if err := m.bad(syntax.StartLine, "not CSV: %v", syntax.Err); err != nil {
				return err
			}
			continue
		case err != nil:
			return m.broken(err)
		}
		if h == nil {
			found, err := m.header(fields)
			if err != nil {
				return err
			}
			h = &found
			continue
		}
		line, _ := r.FieldPos(0)
		if err := m.take(line, fields, *h); err != nil {
			return err
		}
	}
}
