package view

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const shownProcesses = 6

// screenRecord is a reading of a machine for a terminal of Width columns and Height lines; Brief is
// one line, for what is no terminal.
type screenRecord struct {
	Reading  reading `json:"reading"`
	Width    int     `json:"width"`
	Height   int     `json:"height"`
	Coloured bool    `json:"coloured"`
	Brief    bool    `json:"brief"`
}

type reading struct {
	Unix    float64      `json:"unix_s"`
	Errors  int          `json:"errors"`
	GPUs    []gpuReading `json:"gpus"`
	Host    hostReading  `json:"host"`
	PID     *int         `json:"pid"`
	TreeGPU *float64     `json:"tree_gpu_bytes"`
	Alerts  []Alert      `json:"alerts"`
}

type gpuReading struct {
	Name        string   `json:"name"`
	Used        *float64 `json:"used_bytes"`
	Total       *float64 `json:"total_bytes"`
	Headroom    *float64 `json:"headroom_bytes"`
	PowerLimit  *float64 `json:"power_limit_w"`
	MaxClock    *float64 `json:"max_clock_mhz"`
	Utilization *float64 `json:"utilization"`
	Tensor      *float64 `json:"tensor_active"`
	Power       *float64 `json:"power_w"`
	Temperature *float64 `json:"temperature_c"`
	Clock       *float64 `json:"clock_mhz"`
	Throttle    *float64 `json:"throttle"`
	Processes   []struct {
		PID    int      `json:"pid"`
		Name   string   `json:"name"`
		Memory *float64 `json:"memory_bytes"`
	} `json:"processes"`
}

type hostReading struct {
	Total       *float64 `json:"host_total_bytes"`
	Used        *float64 `json:"host_used_bytes"`
	Available   *float64 `json:"host_available_bytes"`
	Contained   bool     `json:"contained"`
	CPUs        int      `json:"cpus"`
	CPU         *float64 `json:"cpu_share"`
	TreeCPU     *float64 `json:"tree_cpu_share"`
	BusiestCore *float64 `json:"busiest_core"`
	Swap        *float64 `json:"swap_used_bytes"`
	Shared      *float64 `json:"shm_used_bytes"`
	SharedTotal *float64 `json:"shm_total_bytes"`
	DiskRead    *float64 `json:"disk_read_bytes_s"`
	DiskWritten *float64 `json:"disk_written_bytes_s"`
	NetReceived *float64 `json:"net_received_bytes_s"`
	NetSent     *float64 `json:"net_sent_bytes_s"`
	Tree        *float64 `json:"tree_rss_bytes"`
	Workers     *float64 `json:"workers_rss_bytes"`
}

const (
	// cards run at their power limit whenever they are busy
	unusual     = runlog.ThrottleHeat | runlog.ThrottleBrake
	full, tight = 0.95, 0.90
)

var escapes = map[string]string{"bad": "\x1b[31m", "warn": "\x1b[33m", "bold": "\x1b[1m"}

// toned is a line of a terminal, cut to its width; Tone is "", "bold", "warn" or "bad".
type toned struct {
	Text, Tone string
	Coloured   bool
}

func (toned) templateName() string { return "toned" }

func (t toned) lines(width int) []string {
	text := clipped(t.Text, width)
	if t.Coloured && t.Tone != "" {
		text = escapes[t.Tone] + text + "\x1b[0m"
	}
	return []string{text}
}

// screen is each GPU in a few lines, or in one where there is no room for more; then the host and
// alerts.
func screen(r screenRecord) Document {
	current := r.Reading
	if r.Brief {
		return Document{Title: current.brief()}
	}
	wide := gaugeWidth(r.Width)
	tail := append(current.host(wide), current.alerts()...)
	var gpus []toned
	for i, g := range current.GPUs {
		gpus = append(gpus, g.tall(i, wide)...)
	}
	if len(gpus) > r.Height-len(tail)-2 {
		gpus = nil
		for i, g := range current.GPUs {
			gpus = append(gpus, g.single(i, min(24, wide)))
		}
	}
	if len(gpus) == 0 {
		gpus = []toned{{Text: "no GPU"}}
	}
	all := append(append([]toned{current.head()}, gpus...), tail...)
	if len(all) >= r.Height {
		all = append(all[:min(len(all), max(1, r.Height-2))], toned{Text: "…"})
	}
	doc := Document{Title: "asrconfig monitor", Untitled: true}
	for _, line := range all {
		line.Coloured = r.Coloured
		doc.Blocks = append(doc.Blocks, line)
	}
	return doc
}

func (n reading) time() string { return strings.Fields(clock(n.Unix))[1] }

func (n reading) head() toned {
	text := "asrconfig monitor · " + n.time()
	if n.PID != nil {
		text += fmt.Sprintf(" · process %d", *n.PID)
	}
	if n.Errors > 0 {
		text += fmt.Sprintf(" · %d failed readings", n.Errors)
	}
	return toned{Text: text, Tone: "bold"}
}

func (n reading) brief() string {
	parts := []string{n.time()}
	for i, g := range n.GPUs {
		parts = append(parts, strings.Join(strings.Fields(g.single(i, 0).Text), " "))
	}
	parts = append(parts, fmt.Sprintf("RAM %s of %s", known(n.Host.Used, size),
		known(n.Host.Total, size)), "CPU "+known(n.Host.CPU, units.Percent))
	if n.PID != nil {
		parts = append(parts, n.process())
	}
	for _, a := range n.Alerts {
		parts = append(parts, marks[levelOf(a.Severity)]+" "+a.Text)
	}
	return strings.Join(parts, " | ")
}

// gauge is a bar of a share, dots where it is not known.
func gauge(share *float64, width int) string {
	if share == nil {
		return strings.Repeat("·", width)
	}
	n := cells(*share, width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// gaugeWidth leaves room for the figures after a gauge.
func gaugeWidth(columns int) int { return max(8, min(40, columns-62)) }

func shareOf(used, total *float64) *float64 {
	if used == nil || total == nil || *total <= 0 {
		return nil
	}
	share := *used / *total
	return &share
}

func toneOf(share *float64) string {
	switch {
	case profile.Or(share, 0) >= full:
		return "bad"
	case profile.Or(share, 0) >= tight:
		return "warn"
	}
	return ""
}

func (g gpuReading) tall(i, wide int) []toned {
	part := shareOf(g.Used, g.Total)
	lines := []toned{
		{Text: fmt.Sprintf("GPU %d  %s", i, name(g.Name)), Tone: "bold"},
		{Text: fmt.Sprintf("  memory  %s %s of %s, %s, headroom %s", gauge(part, wide),
			known(g.Used, size), known(g.Total, size), known(part, units.Percent),
			known(g.Headroom, size)), Tone: toneOf(part)},
		{Text: fmt.Sprintf("  busy    %s %s", gauge(g.Utilization, wide),
			known(g.Utilization, units.Percent))}, g.physics(),
	}
	if len(g.Processes) > 0 {
		var processes []string
		for _, p := range g.Processes {
			processes = append(processes, fmt.Sprintf("%d %s %s", p.PID, p.Name,
				known(p.Memory, size)))
		}
		lines = append(lines, toned{Text: "  processes  " +
			units.Listed(processes, ", ", shownProcesses)})
	}
	return lines
}

func (g gpuReading) physics() toned {
	parts := []string{known(g.Power, amount("W")) + ofLimit(g.PowerLimit),
		known(g.Temperature, amount("°C")), known(g.Clock, amount("MHz")) + ofLimit(g.MaxClock)}
	line := toned{}
	if reasons := g.held(); reasons != "" {
		parts = append(parts, "held back by "+reasons)
	}
	if int(profile.Or(g.Throttle, 0))&unusual != 0 {
		line.Tone = "warn"
	}
	line.Text = "  " + strings.Join(parts, " · ")
	return line
}

func ofLimit(limit *float64) string {
	if profile.Or(limit, 0) <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %.0f", *limit)
}

func (g gpuReading) held() string {
	var reasons []string
	for _, reason := range runlog.Throttles {
		if int(profile.Or(g.Throttle, 0))&reason.Bit != 0 {
			reasons = append(reasons, reason.Name)
		}
	}
	return strings.Join(reasons, ", ")
}

func (g gpuReading) single(i, wide int) toned {
	part := shareOf(g.Used, g.Total)
	text := fmt.Sprintf("GPU %-2d %s %s of %s", i, gauge(part, wide), known(g.Used, size),
		known(g.Total, size))
	text += fmt.Sprintf("  %s  %s  %s", aligned(known(g.Utilization, units.Percent), 5),
		aligned(known(g.Power, amount("W")), 6), aligned(known(g.Temperature, amount("°C")), 5))
	if reasons := g.held(); reasons != "" {
		text += "  " + reasons
	}
	return toned{Text: text, Tone: toneOf(part)}
}

func (n reading) host(wide int) []toned {
	h := n.Host
	part, limit, cores := shareOf(h.Used, h.Total), "", unknown
	if h.Contained {
		limit = ", container's limit"
	}
	if h.CPUs > 0 {
		cores = fmt.Sprintf("%d", h.CPUs)
	}
	shared := h.SharedTotal
	if profile.Or(shared, 0) <= 0 {
		shared = nil
	}
	lines := []toned{
		{Text: "Host", Tone: "bold"},
		{Text: fmt.Sprintf("  RAM     %s %s of %s%s, %s available", gauge(part, wide),
			known(h.Used, size), known(h.Total, size), limit, known(h.Available, size)),
			Tone: toneOf(part)},
		{Text: fmt.Sprintf("  CPU     %s %s of %s cores, the busiest %s", gauge(h.CPU, wide),
			known(h.CPU, units.Percent), cores, known(h.BusiestCore, units.Percent))},
		{Text: fmt.Sprintf("  swap %s · /dev/shm %s of %s", known(h.Swap, size),
			known(h.Shared, size), known(shared, size))},
		{Text: fmt.Sprintf("  disk %s read, %s written · network %s in, %s out",
			known(h.DiskRead, units.Rate), known(h.DiskWritten, units.Rate),
			known(h.NetReceived, units.Rate), known(h.NetSent, units.Rate))},
	}
	if n.PID != nil {
		lines = append(lines, toned{Text: fmt.Sprintf(
			"  %s, of that its children %s; GPU memory %s", n.process(), known(h.Workers, size),
			known(n.TreeGPU, size))})
	}
	return lines
}

// process is what the watched process takes with its children.
func (n reading) process() string {
	return fmt.Sprintf("process %d: CPU %s, RAM %s", *n.PID, known(n.Host.TreeCPU, units.Percent),
		known(n.Host.Tree, size))
}

func (n reading) alerts() []toned {
	var lines []toned
	for _, a := range n.Alerts {
		tone := "warn"
		if a.Severity == "critical" {
			tone = "bad"
		}
		lines = append(lines, toned{Text: fmt.Sprintf("! %s → %s", a.Text, a.Advice), Tone: tone})
	}
	return lines
}
