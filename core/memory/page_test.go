package memory

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// TestThePageIsTrue draws the example of README.md from its trace, and finds each
// drawing on the page.
func TestThePageIsTrue(t *testing.T) {
	raw, err := os.ReadFile("testdata/example.json")
	require.NoError(t, err)
	read, err := trace.Decode(tracetest.Pack(raw))
	require.NoError(t, err)
	m, err := New(read)
	require.NoError(t, err)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for name, drawing := range map[string]string{
		"recorded": drawRecording(read, 5), "templates": drawTemplates(m), "formulas": drawFormulas(read, m, m.templates.Of[3]),
		"replayed": drawReplay(t, read, m, shape(7, 777, 0)),
	} {
		assert.True(t, strings.Contains(string(page), "```\n"+drawing+"```\n"), "the drawing %q should be\n%s", name, drawing)
	}
}

// drawRecording draws the storages of the first segments, from their allocation to their free.
func drawRecording(t *trace.Trace, segments int) string {
	const margin, step = 26, 3
	var head strings.Builder
	var rows [][]rune
	column := margin
	for i, s := range t.Segments[:segments] {
		fmt.Fprintf(&head, "%s%s", strings.Repeat(" ", column-head.Len()), s.Kind)
		allocated := 0
		for _, e := range s.Events {
			if e >= 0 {
				name := fmt.Sprintf("%2d  %-12s%5d B", len(rows), purpose(t.Ops[s.Op[allocated]], t.Tags[s.Tag[allocated]]), e)
				rows = append(rows, []rune(fmt.Sprintf("%-*s[", column, name)))
				allocated++
			} else {
				rows[-(e + 1)] = append(rows[-(e+1)], []rune(strings.Repeat("=", column-len(rows[-(e+1)]))+"]")...)
			}
			column += step
		}
		if i+1 < segments {
			column += step
		}
	}
	var text strings.Builder
	text.WriteString(head.String() + "\n")
	for _, row := range rows {
		if row[len(row)-1] != ']' {
			row = append(row, []rune(strings.Repeat("=", column-len(row)))...)
		}
		text.WriteString(string(row) + "\n")
	}
	return text.String()
}

// purpose is a storage's tag, or its operation.
func purpose(op, tag string) string {
	if tag != "" {
		return tag
	}
	return op
}

// drawTemplates lists the templates: which segments, their events and what they free of earlier
// ones.
func drawTemplates(m *Model) string {
	var text strings.Builder
	for number, c := range m.templates.Templates {
		var segments, events, earlier []string
		for _, r := range c.Recordings {
			segments = append(segments, fmt.Sprint(r.Segment))
		}
		for _, e := range c.Events {
			events = append(events, signed(e))
		}
		for _, g := range c.Inherited {
			for _, f := range g.Frees {
				from := slices.Index(m.templates.Templates, g.From)
				earlier = append(earlier, fmt.Sprintf("-%d of %c %s, before event %d", g.From.Survivors[f.Survivor], 'A'+from,
					[]string{"in the same window", "a window before"}[g.Distance.Windows], f.Event))
			}
		}
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("%c  %-6s segments %-6s  events %-12s %s", 'A'+number, c.Kind, strings.Join(segments, " "),
			strings.Join(events, " "), strings.Join(earlier, "; ")), " "))
	}
	return text.String()
}

func signed(e int32) string {
	if e < 0 {
		return fmt.Sprintf("-%d", ^e)
	}
	return fmt.Sprintf("+%d", e)
}

// drawFormulas lists the storages of a template: their sizes at the traced shapes, and their
// formulas.
func drawFormulas(read *trace.Trace, m *Model, c *template.Template) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-16s", "")
	for _, r := range c.Recordings {
		fmt.Fprintf(&text, "%10s", fmt.Sprintf("(%d, %d)", r.Shape.Batch, r.Shape.Length))
	}
	fmt.Fprintln(&text, "   formula")
	for i, s := range c.Storages {
		fmt.Fprintf(&text, "%2d  %-12s", i, purpose(m.ops[s.Op], read.Tags[s.Tag]))
		for _, r := range c.Recordings {
			fmt.Fprintf(&text, "%10d", r.Sizes[i])
		}
		fmt.Fprintln(&text, "  ", c.Formulas[s.Formula].Describe(m.templates.Variables))
	}
	return text.String()
}

// drawReplay shows what is allocated after each event of the load and two windows, and the answer.
func drawReplay(t *testing.T, read *trace.Trace, m *Model, s trace.Shape) string {
	r := at(s)
	r.Steps, r.Timeline = ptr(2), 1000
	plan, err := m.plan(r)
	require.NoError(t, err)
	e := simulated(t, m, r)
	var text strings.Builder
	fmt.Fprintf(&text, "%-24s%10s%12s%12s%12s%14s\n", "", "allocated", "parameters", "inputs", "activations", "other")
	event := 0
	for _, s := range plan {
		for _, n := range s.Template.Events {
			storage := s.Template.Storages[max(n, ^n)]
			line, parts := e.Timeline, [3]uint64{}
			for i, name := range []string{"parameters", "inputs", "activations"} {
				parts[i] = line.Components[name][event]
			}
			fmt.Fprintf(&text, "%-6s %3s  %-12s%10d%12d%12d%12d%14d\n", s.Template.Kind, signed(n), purpose(m.ops[storage.Op], read.Tags[storage.Tag]), line.Allocated[event],
				parts[0], parts[1], parts[2], line.Allocated[event]-parts[0]-parts[1]-parts[2])
			event++
		}
	}
	require.Equal(t, replay.Events(plan), event)
	fmt.Fprintf(&text, "\npeak_allocated %d (%s, %s: %s), peak_reserved %d\n", e.PeakAllocated, e.AtPeak.Segment, e.AtPeak.Phase, e.AtPeak.Op, e.PeakReserved)
	return text.String()
}
