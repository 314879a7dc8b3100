package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The blocks that documents are made of. Views of records build them; render.go prints a document
// as text by lines, or as HTML by the templates in templates/blocks.html, which read the exported
// fields.

// Block is a part of a document.
type Block interface {
	lines(width int) []string // as text
	templateName() string     // of its HTML
}

// Document is what a view makes of a record: a title, and blocks in the order in which they are
// read.
type Document struct {
	Title    string
	Untitled bool // text leaves the title out
	Blocks   []Block
	Brief    []Block // what commands print unless asked for everything; nil: Blocks
	// columns of the short form where a request names none; 0: as many as of the text
	BriefWidth int
}

func (d Document) lines(width int) []string {
	if d.Untitled {
		return linesOf(d.Blocks, width)
	}
	return append(wrap(d.Title, width, ""), linesOf(d.Blocks, width)...)
}

// briefLines are the most lines of a short form. Usual ones have half as many, those of plans 15 to
// 22: with what to do next a terminal of 24 lines is full.
const briefLines = 30

// brief is a document's short form: what to do and what it gives, what matters most, what to look
// out for.
func (d Document) brief(width int) []string {
	if d.Brief == nil {
		return d.lines(width)
	}
	lines := linesOf(d.Brief, width)
	if len(lines) > 0 && lines[0] == "" { // before the title of a section
		lines = lines[1:]
	}
	if surplus := len(lines) - briefLines + 1; surplus > 1 {
		lines = append(lines[:briefLines-1], fmt.Sprintf("… and %d more lines", surplus))
	}
	return lines
}

func linesOf(blocks []Block, width int) []string {
	var lines []string
	for _, b := range blocks {
		lines = append(lines, b.lines(width)...)
	}
	return lines
}

// section is a titled part; text leaves it out when its body is empty.
type section struct {
	Title, Note string
	Body        []Block
}

func (section) templateName() string { return "section" }

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

// facts are lines in small print.
type facts struct {
	Items []string
	Brief int // how many items text shows, 0 for all; HTML shows all
	More  int // how many further ones there are that are not among Items
}

func (facts) templateName() string { return "facts" }

func (f facts) lines(width int) []string {
	var lines []string
	items := shownOf(f.Brief, f.Items)
	for _, item := range items {
		lines = append(lines, wrap(item, width, "  ")...)
	}
	return append(lines, more(len(f.Items)+f.More-len(items))...)
}

// allFacts are facts of which text shows all, too; empty ones are left out.
func allFacts(items ...string) facts {
	return facts{Items: slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		return item == ""
	})}
}

// The signs of levels: in HTML and badges, and at the start of a notice in text.
var signs = map[string]string{"serious": "✖", "warning": "⚠", "note": "ℹ", "good": "✓"}
var marks = map[string]string{"serious": "!!", "warning": "!", "note": "·", "good": "✓"}

// notice is a caution, a verdict, or an entry of a list with what is to be known of it.
type notice struct {
	Level string // "serious", "warning", "note", "good", or "" of an entry
	What  string // is the case
	Lines []string
}

func (notice) templateName() string { return "notice" }
func (n notice) Sign() string       { return signs[n.Level] }

func (n notice) lines(width int) []string {
	lines := wrap(strings.TrimLeft(marks[n.Level]+" "+n.What, " "), width, "   ")
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

// advice is the Lines of a notice: why it is so, and what to do; "" for none.
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

type tile struct {
	Name, Value, Note string
	Meter             *float64 // the figure as a share, 0 to 1; nil where it is none
}

// tiles are the main figures: next to each other in HTML, one a line in text.
type tiles []tile

func (tiles) templateName() string { return "tiles" }

func (t tiles) lines(width int) []string {
	var rows [][]string
	for _, entry := range t {
		rows = append(rows, []string{entry.Name, entry.Value, entry.Note})
	}
	return grid(rows, []bool{true, true, false}, width)
}

type pairs [][2]string

func (pairs) templateName() string { return "pairs" }

func (p pairs) lines(width int) []string {
	var rows [][]string
	for _, entry := range p {
		rows = append(rows, entry[:])
	}
	return grid(rows, []bool{true, false}, width)
}

// fold is a part that HTML shows when its summary is clicked, and text always.
type fold struct {
	Summary string
	Open    bool // from the start
	Body    []Block
}

func (fold) templateName() string { return "fold" }

func (f fold) lines(width int) []string {
	body := linesOf(f.Body, width-2)
	if len(body) == 0 {
		return nil
	}
	return append([]string{f.Summary}, indented(body, "  ")...)
}

// beside are parts next to each other in HTML, where there is room, and below each other in text.
type beside [][]Block

func (beside) templateName() string { return "beside" }

func (b beside) lines(width int) []string { return linesOf(slices.Concat(b...), width) }

// progress is a bar of the share that is done, 0 to 1.
type progress struct{ Done float64 }

func (progress) templateName() string       { return "progress" }
func (p progress) lines(width int) []string { return []string{bar(p.Done, min(width, 40))} }

type preformatted []string

func (preformatted) templateName() string { return "preformatted" }
func (p preformatted) lines(int) []string { return p }

// cell is a cell of a table. Text shows Text alone.
type cell struct {
	Text         string
	Class        string  // of the HTML
	Meter, Limit float64 // a bar, 0 to 1, and a line in it
}

// Classes keep a short text in one line.
func (c cell) Classes() string {
	if columns(c.Text) <= tightColumns {
		return strings.TrimSpace("tight " + c.Class)
	}
	return c.Class
}

// tightColumns are the most of a text that is not wrapped where others can be.
const tightColumns = 22

func cellsOf(texts ...string) (cells []cell) {
	for _, text := range texts {
		cells = append(cells, cell{Text: text})
	}
	return cells
}

type row struct {
	Cells []cell
	Class string // of the HTML
}

type table struct {
	Head  []string
	Rows  []row
	Skip  map[int]bool // columns that text leaves out
	Brief int          // how many rows text shows, 0 for all; HTML shows all
	More  int          // how many further ones there are that are not among Rows
}

func (table) templateName() string { return "table" }

func (t table) lines(width int) []string {
	shown := shownOf(t.Brief, t.Rows)
	if len(shown) == 0 {
		return nil
	}
	rows := [][]string{t.withoutSkipped(cellsOf(t.Head...))}
	for _, r := range shown {
		rows = append(rows, t.withoutSkipped(r.Cells))
	}
	tight := make([]bool, len(rows[0]))
	for i := range tight {
		tight[i] = !slices.ContainsFunc(rows, func(row []string) bool {
			return columns(row[i]) > tightColumns
		})
	}
	return append(grid(rows, tight, width), more(len(t.Rows)+t.More-len(shown))...)
}

// shownOf are the first few of all, of 0 all.
func shownOf[T any](few int, all []T) []T { return first(cmp.Or(few, len(all)), all) }

// more is a line of how many there are that are not shown; none of none.
func more(hidden int) []string {
	if hidden <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("… and %d more", hidden)}
}

func (t table) withoutSkipped(cells []cell) []string {
	var shown []string
	for i, c := range cells {
		if !t.Skip[i] {
			shown = append(shown, c.Text)
		}
	}
	return shown
}

// plain is a table of texts whose first row is the head.
func plain(rows [][]string) table {
	t := table{Head: rows[0]}
	for _, texts := range rows[1:] {
		t.Rows = append(t.Rows, row{Cells: cellsOf(texts...)})
	}
	return t
}

// Grouped are lists of what has one key, in the order in which the keys come first.
func Grouped[T any](all []T, key func(T) string) (groups [][]T) {
	numbers := map[string]int{}
	for _, item := range all {
		i, ok := numbers[key(item)]
		if !ok {
			i = len(groups)
			numbers[key(item)], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], item)
	}
	return groups
}
