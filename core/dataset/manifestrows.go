package dataset

import (
	stdcsv "encoding/csv"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// jsonRow takes the fields that may hold the path, in the order of columns.
type jsonRow struct {
	AudioFilepath json.RawMessage `json:"audio_filepath"`
	Audio         json.RawMessage `json:"audio"`
	Path          json.RawMessage `json:"path"`
	File          json.RawMessage `json:"file"`
	Wav           json.RawMessage `json:"wav"`
	Filename      json.RawMessage `json:"filename"`
}

// pathOf gives the first field that is there, nil without one.
func (r jsonRow) pathOf() json.RawMessage {
	for _, raw := range []json.RawMessage{r.AudioFilepath, r.Audio, r.Path, r.File, r.Wav, r.Filename} {
		if len(raw) > 0 && string(raw) != "null" {
			return raw
		}
	}
	return nil
}

func (m *manifest) jsonLines() error {
	first := true
	return m.eachLine(func(number int, line []byte) error {
		if first && strings.HasPrefix(strings.TrimSpace(string(line[:min(len(line), 64)])), "[") {
			return fault.New(fault.Unsupported, "write one JSON object a line", "manifest %s is one JSON array", audio.Printable(m.path))
		}
		var row jsonRow
		if err := json.Unmarshal(line, &row); err != nil {
			return m.bad(number, "not a JSON object")
		}
		raw := row.pathOf()
		if raw == nil {
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
		m.add(path)
		return nil
	})
}

func fieldNames(object []byte) []string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(all))
}

func (m *manifest) tsv() error {
	column := -1
	return m.eachLine(func(number int, line []byte) error {
		fields := strings.Split(string(line), "\t")
		if column < 0 {
			if column = pathColumn(fields); column < 0 {
				return m.missing(fields)
			}
			return nil
		}
		if len(fields) <= column || fields[column] == "" {
			return m.bad(number, "has no path in column %d of %d", column+1, len(fields))
		}
		path := fields[column]
		if len(path) > 2 && path[0] == '"' && path[len(path)-1] == '"' {
			path = strings.ReplaceAll(path[1:len(path)-1], `""`, `"`)
		}
		m.add(path)
		return nil
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
	column := -1
	for {
		if m.ctx.Err() != nil {
			return cancelled(m.ctx, "reading "+audio.Printable(m.path))
		}
		in.left = maxLine
		fields, err := r.Read()
		var syntax *stdcsv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errRecordLength):
			return fault.New(fault.Corrupt, "look for a quote that is never closed", "manifest %s has a record longer than %d MiB", audio.Printable(m.path), maxLine>>20)
		case errors.As(err, &syntax):
			if err := m.bad(syntax.StartLine, "not CSV: %v", syntax.Err); err != nil {
				return err
			}
			continue
		case err != nil:
			return fault.Wrap(bare(err), fault.NotFound, "check the disk and the mount", "reading %s", audio.Printable(m.path))
		}
		if column < 0 {
			if column = pathColumn(fields); column < 0 {
				return m.missing(slices.Clone(fields))
			}
			continue
		}
		if err := m.record(r, fields, column); err != nil {
			return err
		}
	}
}

// record takes the path from one CSV record.
func (m *manifest) record(r *stdcsv.Reader, fields []string, column int) error {
	if len(fields) <= column || fields[column] == "" {
		line, _ := r.FieldPos(0)
		return m.bad(line, "has no path in column %d of %d", column+1, len(fields))
	}
	m.add(fields[column])
	return nil
}
