package dataset

import (
	"errors"
	"maps"
	"slices"
)

// Table is a manifest as it is listed: its rows, not measured.
type Table struct {
	Columns []string   // of its rows, in order
	Rows    []TableRow // in order, bad lines included

	wanted []string    // the columns that are asked for beside path and text
	extra  [][]*string // their values, beside the entries
	seen   map[string]bool
}

// TableRow is what one row says of its clip.
type TableRow struct {
	Path    string    `json:"path"`    // absolute; of a bad line its file and number
	Offset  float64   `json:"offset"`  // seconds from which on the file is meant
	Seconds float64   `json:"seconds"` // of a piece; 0: to the end of the file
	Piece   bool      `json:"piece"`   // the row selects a part of the file
	Text    *string   `json:"text"`
	Extra   []*string `json:"extra"` // the columns that were asked for
	Error   string    `json:"error"` // why the line cannot be read
}

// errNoColumn ends a listing without a column of paths, whose columns are known then.
var errNoColumn = errors.New("no column with paths")

// namedRows is how many rows of JSON are looked at for their names: they may have different ones.
const namedRows = 1000

// names takes those of a row in JSON.
func (t *Table) names(row object) {
	if t == nil || len(t.extra) >= namedRows {
		return
	}
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

// put keeps the values of the row at an index.
func (t *Table) put(index int, values []*string) {
	if t == nil || values == nil {
		return
	}
	t.extra = append(t.extra, make([][]*string, index-len(t.extra))...)
	t.extra = append(t.extra, values)
}

func (o object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// values are those of the columns that are asked for.
func (t *Table) values(of func(name string) *string) (values []*string) {
	if t == nil {
		return nil
	}
	for _, name := range t.wanted {
		values = append(values, of(name))
	}
	return values
}

// fill takes the rows as they were listed.
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
		if i < len(t.extra) {
			row.Extra = t.extra[i]
		}
		if e.more == nil {
			continue
		}
		row.Text = e.more.text
		switch by := e.more.by.(type) {
		case *segment:
			row.Piece, row.Offset, row.Seconds = true, by.offset, by.seconds
		case *arkMember:
			row.Error = "it lies in an archive of Kaldi's, which is not decoded"
		}
	}
}
