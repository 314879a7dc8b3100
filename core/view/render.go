// Package view shows records to people: as text for terminals, as cards and pages of HTML with
// inline SVG, as CSV, and as charts for other programs to draw. A view turns a record into a
// document of few kinds of blocks; how these look is in one place. It knows no device and no file.
package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Request asks for a record of a kind in a format: "text", "brief", "html" (a card), "page",
// "title", "charts" or "csv".
type Request struct {
	Kind   string          `json:"kind"`   // the name of a view, such as "plan" or "batch table"
	Format string          `json:"format"` // text, brief, html, page, title, csv or charts
	Width  int             `json:"width"`  // of text, in columns; 0 is 110, of a plan's short form 80
	Record json.RawMessage `json:"record"` // as to_json of what is shown gives it
}

const (
	narrowest, broadest = 20, 1000 // columns
)

// view makes a document of a record; csv, where it has one, a table for spreadsheets.
type view struct {
	document func(raw []byte) (Document, error)
	csv      func(raw []byte) (string, error)
}

// kinds are the views: to add one, a function from its record to a Document, and a row here.
var kinds = map[string]view{
	"plan":     of(plan),
	"hardware": of(hardware),
	"model":    of(model),
	"dataset":  of(dataset),
	"box":      of(boxed),

	"memory":         of(memory),
	"batch table":    of(batchTable),
	"comparison":     of(comparison),
	"by hand":        of(handComparison),
	"largest models": of(largest),
	"benchmark": {document: of(benchmark).document, csv: spreadsheet("original", "plan", "loader",
		"options", "speedup", "cpu_speedup")},
	"run":            of(run),
	"run comparison": {document: of(compareRuns).document, csv: spreadsheet("figures", "settings")},
	"panel":          of(panel),
	"screen":         of(screen),
}

// of is a view by the function from its record to a document.
func of[R any](show func(R) Document) view {
	return view{document: read(func(record R) (Document, error) { return show(record), nil })}
}

// read decodes a record, which may have more than is shown, and makes its texts safe to show.
func read[R, A any](show func(R) (A, error)) func([]byte) (A, error) {
	return func(raw []byte) (answer A, err error) {
		var record R
		if err := json.Unmarshal(tidy(raw), &record); err != nil {
			return answer, err
		}
		return show(record)
	}
}

// Render shows a record.
func Render(r Request) (Shown, error) {
	show, ok := kinds[r.Kind]
	if !ok {
		return Shown{}, fault.New(fault.InvalidArgument,
			"choose one of "+strings.Join(sortedKeys(kinds), ", "),
			"showing a record: there is no view of kind %q", clipped(r.Kind, nameLength))
	}
	if r.Width != 0 && (r.Width < narrowest || r.Width > broadest) {
		return Shown{}, fault.New(fault.InvalidArgument, "pass 20 to 1000 columns, or 0 for 110",
			"showing a %s: invalid width %d", r.Kind, r.Width)
	}
	if r.Format == "csv" && show.csv != nil {
		table, err := show.csv(r.Record)
		return Shown{Text: table}, err
	}
	doc, err := show.document(r.Record)
	if err != nil {
		return Shown{}, fault.Wrap(err, fault.InvalidArgument,
			"pass the record as its to_json gives it", "showing a %s: reading the record", r.Kind)
	}
	return doc.as(r)
}

// Shown is a record as it was asked for.
type Shown struct {
	Text   string  `json:"text"`   // the title, where charts were asked for
	Charts []chart `json:"charts"` // null in other formats
}

func (d Document) as(r Request) (Shown, error) {
	switch r.Format {
	case "text":
		return Shown{Text: strings.Join(d.lines(cmp.Or(r.Width, defaultWidth)), "\n")}, nil
	case "brief":
		width := cmp.Or(r.Width, d.BriefWidth, defaultWidth)
		return Shown{Text: strings.Join(d.brief(width), "\n")}, nil
	case "title":
		return Shown{Text: d.Title}, nil
	case "charts":
		return Shown{Text: d.Title, Charts: charts(d.Blocks)}, nil
	case "html", "page":
		text, err := d.html(map[string]string{"html": "card", "page": "page"}[r.Format])
		if err != nil {
			return Shown{}, fault.Wrap(err, fault.Internal, "", "showing a %s as HTML", r.Kind)
		}
		return Shown{Text: text}, nil
	}
	return Shown{}, fault.New(fault.InvalidArgument,
		"choose text, brief, html, page, title or charts", "showing a %s: there is no format %q",
		r.Kind, clipped(r.Format, nameLength))
}

// charts are those that other programs draw, in their order.
func charts(blocks []Block) []chart {
	var drawn []chart
	for _, b := range blocks {
		switch block := b.(type) {
		case chart:
			if block.plotted() {
				drawn = append(drawn, block)
			}
		case section:
			drawn = append(drawn, charts(block.Body)...)
		case beside:
			drawn = append(drawn, charts(slices.Concat(block...))...)
		}
	}
	return drawn
}
