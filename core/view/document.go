package view

import (
	"fmt"
	"strings"
)

// Block is a part of a document. It knows its look as text; the template that it names is its look
// as HTML.
type Block interface {
	lines(width int) []string
	look() string
}

// Document is what a view makes of a record: a headline, and blocks in the order in which they are
// read.
type Document struct {
	Title    string
	Untitled bool // as text
	Blocks   []Block
	Brief    []Block // what commands print unless all is asked for; nil: everything
}

// lines of a document are its headline and its blocks.
func (d Document) lines(width int) []string {
	if d.Untitled {
		return linesOf(d.Blocks, width)
	}
	return append(wrap(d.Title, width, ""), linesOf(d.Blocks, width)...)
}

func linesOf(blocks []Block, width int) []string {
	var lines []string
	for _, b := range blocks {
		lines = append(lines, b.lines(width)...)
	}
	return lines
}

// section is a titled part; without a body there is none.
type section struct {
	Title, Note string
	Body        []Block
}

func (section) look() string { return "section" }

func (s section) lines(width int) []string {
	body := linesOf(s.Body, width-2)
	if len(body) == 0 {
		return nil
	}
	title := s.Title
	if s.Note != "" {
		title += " (" + s.Note + ")"
	}
	return append([]string{"", title}, indented(body, "  ")...)
}

// facts are small lines. Of many, text shows the first Brief, HTML all that are there; More were
// left out before.
type facts struct {
	Items []string
	Brief int
	More  int
}

func (facts) look() string { return "facts" }

func (f facts) lines(width int) []string {
	var lines []string
	items := f.Items
	if f.Brief > 0 && len(items) > f.Brief {
		items = items[:f.Brief]
	}
	for _, item := range items {
		lines = append(lines, wrap(item, width, "  ")...)
	}
	if hidden := len(f.Items) + f.More - len(items); hidden > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", hidden))
	}
	return lines
}

// said are facts that are all shown.
func said(items ...string) facts { return facts{Items: items} }

var signs = map[string]string{"serious": "✖", "warning": "⚠", "note": "ℹ", "good": "✓"}
var marks = map[string]string{"serious": "!!", "warning": "!", "note": "·", "good": "✓"}

// notice is something to look out for, or a verdict: Level is "serious", "warning", "note" or
// "good".
type notice struct {
	Level, What string
	Lines       []string
}

func (notice) look() string   { return "notice" }
func (n notice) Sign() string { return signs[n.Level] }

func (n notice) lines(width int) []string {
	lines := wrap(marks[n.Level]+" "+n.What, width, "   ")
	for _, line := range n.Lines {
		lines = append(lines, indented(wrap(line, width-3, "  "), "   ")...)
	}
	return lines
}

// levelOf is the level of a notice for a severity of alerts and findings.
func levelOf(severity string) string {
	switch severity {
	case "critical", "serious":
		return "serious"
	case "warn", "warning":
		return "warning"
	}
	return "note"
}

// advice is what a notice says beside what is the case: why, and what to do.
func advice(reason, remedy string) []string {
	var lines []string
	if reason != "" {
		lines = append(lines, reason)
	}
	if remedy != "" {
		lines = append(lines, "→ "+remedy)
	}
	return lines
}

// badge is a short remark at the top: Level is that of a notice, "yes", or "".
type badge struct{ Level, Text string }

func (b badge) Sign() string { return signs[b.Level] }

type badges []badge

func (badges) look() string { return "badges" }

func (b badges) lines(width int) []string {
	var parts []string
	for _, entry := range b {
		parts = append(parts, strings.TrimSpace(entry.Sign()+" "+entry.Text))
	}
	if len(parts) == 0 {
		return nil
	}
	return wrap(strings.Join(parts, " · "), width, "")
}

// tile is one figure: Meter, where it is known, is a share of 0 to 1.
type tile struct {
	Name, Value, Note string
	Meter             *float64
}

type tiles []tile

func (tiles) look() string { return "tiles" }

func (t tiles) lines(width int) []string {
	wide, value := 0, 0
	for _, entry := range t {
		wide, value = max(wide, columns(entry.Name)), max(value, columns(entry.Value))
	}
	var lines []string
	for _, entry := range t {
		lines = append(lines, wrap(padded(entry.Name, min(wide, longName))+"  "+
			strings.TrimRight(padded(entry.Value, min(value, longName))+"  "+entry.Note, " "),
			width, "  ")...)
	}
	return lines
}

// pairs are names with values.
type pairs [][2]string

func (pairs) look() string { return "pairs" }

func (p pairs) lines(width int) []string {
	wide := 0
	for _, entry := range p {
		wide = max(wide, columns(entry[0]))
	}
	var lines []string
	for _, entry := range p {
		lines = append(lines, wrap(padded(entry[0], min(wide, longName))+"  "+entry[1], width,
			strings.Repeat(" ", min(wide, 20)+2))...)
	}
	return lines
}

// fold is a part that opens; as text it is open.
type fold struct {
	Summary, Changed, Digest string
	Open                     bool
	Body                     []Block
}

func (fold) look() string { return "fold" }

func (f fold) lines(width int) []string {
	body := linesOf(f.Body, width-2)
	if len(body) == 0 {
		return nil
	}
	return append([]string{f.Summary}, indented(body, "  ")...)
}

// beside are parts next to each other where there is room.
type beside [][]Block

func (beside) look() string { return "beside" }

func (b beside) lines(width int) []string {
	var lines []string
	for _, part := range b {
		lines = append(lines, linesOf(part, width)...)
	}
	return lines
}

// inHTML are parts that text does without, inText lines that HTML does without.
type inHTML struct{ Body []Block }
type inText []string

func (inHTML) look() string         { return "in HTML" }
func (inHTML) lines(int) []string   { return nil }
func (inText) look() string         { return "in text" }
func (t inText) lines(int) []string { return t }

// progress is how much is done, 0 to 1.
type progress struct{ Done float64 }

func (progress) look() string               { return "progress" }
func (p progress) lines(width int) []string { return []string{bar(p.Done, min(width, 40))} }

// preformatted are lines as they are.
type preformatted []string

func (preformatted) look() string         { return "preformatted" }
func (p preformatted) lines(int) []string { return p }

// cell is one of a table: a text, a note under it, marks beside it in HTML, a meter of 0 to 1 with
// its limit.
type cell struct {
	Text, Note, Class string
	Marks             []string
	Meter, Limit      float64
}

type row struct {
	Cells []cell
	Class string
}

// table is a head and rows. As text, columns that Skip names are left out, and rows behind the
// first Brief, where it is not 0.
type table struct {
	Head  []string
	Rows  []row
	Skip  map[int]bool
	Brief int
}

func (table) look() string { return "table" }

func (t table) lines(width int) []string {
	rows := [][]string{t.kept(t.Head)}
	var tight []bool
	for i := range t.Head {
		if !t.Skip[i] {
			tight = append(tight, len(t.Rows) > 0 &&
				strings.HasPrefix(t.Rows[0].Cells[i].Class, "tight"))
		}
	}
	for i, r := range t.Rows {
		if t.Brief > 0 && i >= t.Brief {
			break
		}
		texts := make([]string, len(t.Head))
		for i, c := range r.Cells {
			texts[i] = c.Text
		}
		rows = append(rows, t.kept(texts))
	}
	return grid(rows, tight, width)
}

func (t table) kept(texts []string) []string {
	var out []string
	for i, text := range texts {
		if !t.Skip[i] {
			out = append(out, text)
		}
	}
	return out
}

// plain is a table of texts, the first row its head.
func plain(rows [][]string) table {
	t := table{Head: rows[0]}
	for _, texts := range rows[1:] {
		r := row{}
		for _, text := range texts {
			r.Cells = append(r.Cells, cell{Text: text})
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
