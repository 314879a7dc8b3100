package dataset

import (
	"path/filepath"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
)

// Records of tables, as spreadsheets, pandas and scripts of people's own write them: RFC 4180 where
// a row keeps to it. A quotation mark that is never closed, or that closes in the middle of a
// field, is part of the text: it must not swallow the rows after it.

const (
	delimiters  = ",;|\t"
	maxSpan     = 1000    // lines of one quoted field
	maxSpanSize = 1 << 20 // bytes of one
)

// dialect is how a table divides its lines.
type dialect struct {
	delimiter byte
	// a field's quotation marks are its own unless only quoting explains them, as in Common Voice's
	// .tsv
	literal bool
	padded  bool // a space follows each delimiter
}

// dialectOf is that of a table with this header: the one that gives it a column of that name, and
// then the most columns.
func dialectOf(head string, tabs bool, wanted []string) dialect {
	best, columns, named := dialect{delimiter: ','}, 0, false
	for _, delimiter := range []byte(delimiters) {
		if tabs && delimiter != '\t' {
			continue
		}
		d := dialect{delimiter: delimiter}
		names, _ := d.split(head)
		if has := column(names, wanted...) >= 0; has && !named ||
			has == named && len(names) > columns {
			best, columns, named = d, len(names), has
		}
	}
	names := strings.Split(head, string(best.delimiter))
	best.padded = len(names) > 1
	for _, name := range names[1:] {
		best.padded = best.padded && strings.HasPrefix(name, " ")
	}
	best.literal = tabs && !strings.HasPrefix(names[0], `"`)
	return best
}

// split divides one line, or several of one record. open says that a field starts with a quotation
// mark that is not closed; that field ends at its delimiter then, as any other does.
func (d dialect) split(line string) (fields []string, open bool) {
	for {
		if d.padded {
			line = strings.TrimLeft(line, " ")
		}
		end, quoted := -1, false
		if strings.HasPrefix(line, `"`) {
			var unclosed bool
			end, unclosed = d.closing(line)
			quoted, open = end > 0, open || unclosed
		}
		if !quoted {
			if end = strings.IndexByte(line, d.delimiter); end < 0 {
				end = len(line)
			}
		}
		field := line[:end]
		if quoted && (!d.literal || strings.ContainsAny(field, "\t\n") ||
			strings.Contains(field[1:end-1], `""`)) {
			field = unquoted(field)
		}
		fields = append(fields, field)
		if end == len(line) {
			return fields, open
		}
		line = line[end+1:]
	}
}

func unquoted(field string) string { return strings.ReplaceAll(field[1:len(field)-1], `""`, `"`) }

// closing is where the field ends that a quotation mark begins, 0 where it has another one in its
// middle; open says that there is no further one.
func (d dialect) closing(line string) (end int, open bool) {
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		switch {
		case i+1 == len(line) || line[i+1] == d.delimiter:
			return i + 1, false
		case line[i+1] == '"':
			i++
		default:
			return 0, false
		}
	}
	return 0, true
}

// records reads a table. Lines that were looked at and belong to no quoted field wait for their
// turn.
type records struct {
	m      *manifest
	ahead  []string
	number int // of the line read last
	dialect
	header
}

// line returns the next one; ok is false after the last.
func (r *records) line() (line string, ok bool, err error) {
	if len(r.ahead) > 0 {
		line, r.ahead = r.ahead[0], r.ahead[1:]
		r.number++
		return line, true, nil
	}
	text, ok, err := r.m.line()
	r.number = r.m.number
	return string(text), ok, err
}

// filled returns the next line that is not blank.
func (r *records) filled() (line string, ok bool, err error) {
	for {
		line, ok, err = r.line()
		if !ok || err != nil || strings.TrimSpace(line) != "" {
			return line, ok, err
		}
	}
}

// next returns the fields of a record and the number of its first line.
func (r *records) next() (number int, fields []string, ok bool, err error) {
	line, ok, err := r.filled()
	if !ok || err != nil {
		return 0, nil, false, err
	}
	number = r.number
	fields, open := r.split(line)
	if open {
		fields, err = r.spanning(line, fields)
	}
	return number, fields, true, err
}

// spanning reads on where a quoted field is not closed in its line. It is one field of several
// lines where a later line closes it and none of them is a row on its own; else the quotation mark
// is part of the text.
func (r *records) spanning(first string, alone []string) ([]string, error) {
	complete := r.path < len(alone) && (len(alone) >= r.columns ||
		r.text >= 0 && r.text < len(alone))
	record, number := first, r.number
	var lines []string
	for len(lines) < maxSpan && len(record) < maxSpanSize {
		line, ok, err := r.line()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		lines = append(lines, line)
		record += "\n" + line
		if complete && r.isRow(line, alone[r.path]) {
			break
		}
		if fields, open := r.split(record); !open && strings.Contains(line, `"`) {
			if len(fields) == r.columns && fields[r.path] != "" {
				return fields, nil
			}
			break
		}
	}
	r.ahead, r.number = append(lines, r.ahead...), number
	return alone, nil
}

// isRow reports whether a line is a row on its own: its path looks like that of another row.
func (r *records) isRow(line, like string) bool {
	fields, _ := r.split(line)
	if r.path >= len(fields) {
		return false
	}
	path, ending := fields[r.path], filepath.Ext(like)
	if audio.HasExtension(like) || audio.HasExtension(path) {
		return audio.HasExtension(path) || len(ending) > 1 &&
			strings.EqualFold(filepath.Ext(path), ending)
	}
	digits := func(text string) bool { return strings.ContainsAny(text, "0123456789") }
	return len(fields) == r.columns && path != "" && !strings.ContainsAny(path, " \t") &&
		digits(path) == digits(like)
}
