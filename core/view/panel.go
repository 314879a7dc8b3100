package view

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// panelRecord is a training while it runs: where it is, and what its monitor sees.
type panelRecord struct {
	Step     int      `json:"step"`
	Steps    int      `json:"steps"`
	LeftS    *float64 `json:"left_s"`
	Waited   *float64 `json:"waited"`
	MFU      *float64 `json:"model_flops_utilization"`
	Stopped  bool     `json:"stopped"`
	Shot     snapshot `json:"shot"`
	Activity struct {
		hostReading
		GPUs []gpuReading `json:"gpus"`
	} `json:"activity"`
	History struct {
		Times     []float64  `json:"times_s"`
		HostTotal float64    `json:"host_total_bytes"`
		HostUsed  []*float64 `json:"host_used_bytes"`
		GPUs      []struct {
			Total float64    `json:"total_bytes"`
			Used  []*float64 `json:"used_bytes"`
		} `json:"gpus"`
	} `json:"history"`
	Alerts []Alert `json:"alerts"`
}

type snapshot struct {
	HostTotal *float64 `json:"host_total"`
	HostUsed  *float64 `json:"host_used"`
	GPUs      []struct {
		Total    *float64 `json:"total"`
		Used     *float64 `json:"used"`
		Headroom *float64 `json:"headroom"`
	} `json:"gpus"`
}

const shownAlerts = 4

func panel(r panelRecord) Document {
	doc := Document{Title: r.headline()}
	if r.Steps > 0 {
		doc.Blocks = append(doc.Blocks, progress{Done: float64(r.Step) / float64(r.Steps)})
	}
	doc.Blocks = append(doc.Blocks, r.alerts()...)
	doc.Blocks = append(doc.Blocks, r.tiles(),
		section{Title: "Memory", Note: "used share, PyTorch's cache included",
			Body: []Block{r.overTime()}})
	return doc
}

func (r panelRecord) headline() string {
	where, remaining := "Step", ""
	if r.Stopped {
		where = "Stopped after step"
	}
	if r.LeftS != nil {
		remaining = fmt.Sprintf(" · about %s left", units.Duration(roughly(*r.LeftS)))
	}
	return fmt.Sprintf("%s %d of %d%s", where, r.Step, r.Steps, remaining)
}

// roughly is whole seconds, of longer times whole minutes.
func roughly(seconds float64) float64 {
	if seconds < 90 {
		return max(1, math.Round(seconds))
	}
	return 60 * math.Round(seconds/60)
}

func (r panelRecord) alerts() []Block {
	var blocks []Block
	for i := len(r.Alerts) - 1; i >= 0 && len(blocks) < shownAlerts; i-- {
		if a := r.Alerts[i]; a.ClearedS == nil {
			blocks = append(blocks, notice{Level: levelOf(a.Severity), What: a.Text,
				Lines: advice("", a.Advice)})
		}
	}
	return blocks
}

func (r panelRecord) tiles() tiles {
	var figures tiles
	for i, g := range r.Shot.GPUs {
		title := "GPU"
		if len(r.Shot.GPUs) > 1 {
			title = fmt.Sprintf("GPU %d", i)
		}
		figures = append(figures, memoryTile(title+" memory", g.Used, g.Total,
			"with PyTorch's cache"),
			tile{Name: "headroom", Value: known(g.Headroom, units.InGiB), Note: "unused cache is free"})
		if i < len(r.Activity.GPUs) && r.Activity.GPUs[i].Utilization != nil {
			figures = append(figures, r.Activity.GPUs[i].tile())
		}
	}
	figures = append(figures, memoryTile("host memory", r.Shot.HostUsed, r.Shot.HostTotal, ""))
	if a := r.Activity; a.CPU != nil {
		figures = append(figures, tile{Name: "CPU", Value: units.Percent(*a.CPU),
			Note: "this training " + known(a.TreeCPU, units.Percent), Meter: a.CPU})
	}
	if w := r.Activity.Workers; w != nil && *w > 0 {
		figures = append(figures, tile{Name: "loader's workers", Value: units.InGiB(*w), Note: "RAM"})
	}
	if r.MFU != nil {
		figures = append(figures, useful(*r.MFU))
	}
	if r.Waited != nil {
		figures = append(figures, tile{Name: "waits for the loader",
			Value: fmt.Sprintf("%.0f %%", 100**r.Waited), Note: "of the time"})
	}
	return figures
}

func memoryTile(title string, used, total *float64, note string) tile {
	share := shareOf(used, total)
	if share == nil {
		return tile{Name: title, Value: "unknown", Note: note}
	}
	return tile{Name: title, Value: fmt.Sprintf("%.1f of %s", *used/units.GiB, units.InGiB(*total)),
		Note: note, Meter: share}
}

func (a gpuReading) tile() tile {
	var facts []string
	if a.Tensor != nil {
		facts = append(facts, "tensor cores "+units.Percent(*a.Tensor))
	}
	if a.Power != nil {
		facts = append(facts, fmt.Sprintf("%.0f W", *a.Power))
	}
	if a.Temperature != nil {
		facts = append(facts, fmt.Sprintf("%.0f °C", *a.Temperature))
	}
	return tile{Name: "busy", Value: fmt.Sprintf("%.0f %%", 100**a.Utilization),
		Note: strings.Join(facts, " · "), Meter: a.Utilization}
}

// overTime is a line for each GPU and one for the host, as shares, since the start.
func (r panelRecord) overTime() curves {
	h := r.History
	c := curves{Kind: "curves", Title: "used share of memory", Unit: "%", XUnit: "s", Top: 100,
		X: axis{High: 1}}
	if len(h.Times) > 0 {
		end := h.Times[len(h.Times)-1]
		c.X = axis{High: max(end, 1e-9), Ticks: []tick{{At: 0, Text: "start"},
			{At: end, Text: units.Duration(end)}}}
	}
	for i, g := range h.GPUs {
		c.Series = append(c.Series, shareOver(fmt.Sprintf("GPU %d", i),
			lineColours[i%len(lineColours)], h.Times, g.Used, g.Total)...)
	}
	c.Series = append(c.Series, shareOver("host", otherColour, h.Times, h.HostUsed, h.HostTotal)...)
	c.Limit = &Limit{At: 100, Name: "all of it"}
	return c
}

// shareOver is a line in pieces, with gaps where nothing is known; nothing where the whole is not.
func shareOver(title, colour string, times []float64, used []*float64, total float64) []Series {
	if total <= 0 {
		return nil
	}
	s, piece := Series{Name: title, Colour: colour}, [][2]float64(nil)
	for i, atS := range times[:min(len(times), len(used))] {
		if used[i] != nil {
			piece = append(piece, [2]float64{atS, 100 * min(1, *used[i]/total)})
		} else if piece != nil {
			s.Pieces, piece = append(s.Pieces, piece), nil
		}
	}
	if piece != nil {
		s.Pieces = append(s.Pieces, piece)
	}
	return []Series{s}
}
