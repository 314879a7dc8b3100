package dataset

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Table is a manifest as it is listed: its rows, not measured.
type Table struct {
	Columns []string   // of its rows, in order
	Rows    []TableRow // in order, bad lines included

	wanted []string // the columns that are asked for beside path and text
	named  int      // rows that were looked at for their names
	seen   map[string]bool
}

// TableRow is one row of a manifest, or a file of a folder.
type TableRow struct {
	// Path is absolute; of a line that cannot be read its file and number.
	Path string `json:"path"`
	// Offset is the number of seconds from which on the file is meant.
	Offset float64 `json:"offset"`
	// Seconds is the duration of a piece; 0: to the end of the file.
	Seconds float64 `json:"seconds"`
	// Piece is whether the row selects a part of the file.
	Piece bool `json:"piece"`
	// Text is the transcript, null without one.
	Text *string `json:"text"`
	// Extra are the columns that were asked for, null where none has a value.
	Extra []*string `json:"extra"`
	// Error is why the line cannot be read, "" where it can.
	Error string `json:"error"`
}

// errNoColumn ends a listing without a column of paths, whose columns are known then.
var errNoColumn = errors.New("no column with paths")

// namedRows is how many rows of JSON are looked at for their names: they may have different ones.
const namedRows = 1000

func (t *Table) names(row object) {
	if t == nil || t.named >= namedRows {
		return
	}
	t.named++
	if t.seen == nil {
		t.seen = map[string]bool{}
	}
	for _, name := range row.names() {
		if !t.seen[name] {
			t.seen[name] = true
			t.Columns = append(t.Columns, name)
		}
	}
}

func (o object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

func (t *Table) fill(entries []entry) {
	t.Rows = make([]TableRow, len(entries))
	for i := range entries {
		e, row := &entries[i], &t.Rows[i]
		row.Path = e.path
		if e.clip != nil {
			row.Path, row.Error = e.clip.Path, e.clip.Error
			if row.Error == "" {
				row.Error = "its audio comes from a command or an address, which is not read"
			}
		}
		if e.more == nil {
			continue
		}
		row.Text, row.Extra = e.more.text, e.more.extra
		switch source := e.more.by.(type) {
		case *segment:
			row.Piece, row.Offset, row.Seconds = true, source.offset, source.seconds
		case *arkMember:
			row.Error = "it is in a Kaldi archive, which is not decoded"
		}
	}
}

// tableOf returns the table of an audio folder (huggingface.co/docs/datasets/audio_dataset), "" for
// another folder.
func tableOf(folder string) string {
	for _, name := range []string{"metadata.csv", "metadata.jsonl", "metadata.tsv"} {
		if path := filepath.Join(folder, name); isRegular(path) {
			return path
		}
	}
	return ""
}

// audioColumns are the names of the column that holds the path, the first that is there. Case does
// not matter.
var audioColumns = []string{
	"audio_filepath", "audio", "path", "file", "wav", "filename", "file_name", "audio_path",
	"audio_file", "file_path",
	"filepath", "wav_path", "wav_filename", "speech",
}

// textColumns are the names of the column that holds what is said, the first that is there.
var textColumns = []string{
	"text", "sentence", "transcription", "transcript", "normalized_text", "raw_transcription",
	"wrd",
	"normalized_transcription", "normalised_text", "target_text", "label", "caption",
}

// Columns are the usual names of the columns with paths and with transcripts, the preferred ones
// first.
func Columns() (audio, text []string) {
	return slices.Clone(audioColumns), slices.Clone(textColumns)
}

// column finds the first of the wanted names in a header; -1 without any.
func column(names []string, wanted ...string) int {
	for _, w := range wanted {
		if i := slices.IndexFunc(names, func(n string) bool {
			return strings.EqualFold(strings.TrimSpace(n), w)
		}); i >= 0 {
			return i
		}
	}
	return -1
}

// either is the name that the caller gives, or else the usual ones.
func either(name string, usual []string) []string {
	if name != "" {
		return []string{name}
	}
	return usual
}

// missing is the error of a manifest without a path column. A listing tells the names that it has
// instead.
func (m *manifest) missing(names []string) error {
	columns := slices.Clone(names[:min(len(names), 30)])
	if m.listing != nil && len(m.wanted.Splits) == 0 && len(m.entries) == 0 {
		m.listing.Columns = columns
		return errNoColumn
	}
	for i, name := range columns {
		columns[i] = strconv.Quote(fault.Shorten(name))
	}
	return fault.New(fault.InvalidArgument, "name the column with the paths one of: "+
		strings.Join(audioColumns, ", "),
		"manifest %s has no column with paths; columns found: %s", fault.Printable(m.path),
		strings.Join(columns, ", "))
}
