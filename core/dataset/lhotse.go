package dataset

import (
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Lhotse's manifests (lhotse.readthedocs.io, "Corpus", "Cuts"): recordings with sources, and cuts
// out of them.

type lhotseRow struct {
	lhotseCut
	Sources []lhotseSource `json:"sources"` // of a recording by itself
	Rate    int            `json:"sampling_rate"`
	Tracks  []struct {
		Cut    lhotseCut `json:"cut"`
		Offset float64   `json:"offset"`
	} `json:"tracks"` // of a mix
}

type lhotseCut struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Start        float64          `json:"start"`
	Duration     float64          `json:"duration"`
	Recording    *lhotseRecording `json:"recording"`
	Supervisions []struct {
		Text *string `json:"text"`
	} `json:"supervisions"`
}

type lhotseRecording struct {
	Sources    []lhotseSource  `json:"sources"`
	Rate       int             `json:"sampling_rate"`
	Transforms json.RawMessage `json:"transforms"`
}

type lhotseSource struct {
	Type   string `json:"type"`
	Source string `json:"source"`
}

// lhotse takes a line that is Lhotse's; ok is false of any other.
func (m *manifest) lhotse(number int, line []byte) (ok bool, err error) {
	var l lhotseRow
	if err := json.Unmarshal(line, &l); err != nil {
		return false, nil
	}
	switch {
	case len(l.Tracks) > 0:
		return true, m.mix(number, &l)
	case l.Recording != nil:
		return true, m.cut(number, &l.lhotseCut)
	case len(l.Sources) > 0:
		return true, m.from(number, l.ID, l.Sources, mention{}, l.Duration, l.Rate)
	case l.Type == "PaddingCut":
		return true, m.bad(number, "%s: is padding without audio", l.ID)
	}
	return false, nil
}

func (m *manifest) cut(number int, c *lhotseCut) error {
	r := mention{text: c.text(m.texts), cut: true, offset: c.Start, seconds: c.Duration}
	if !(c.Start >= 0 && c.Start <= maxClipS && c.Duration > 0 && c.Duration <= maxClipS) {
		return m.bad(number, "%s: cuts %g s from %g s on", c.ID, c.Duration, c.Start)
	}
	if c.Recording.resized() {
		m.given(c.ID, c.Duration, c.Recording.Rate, r.text)
		return nil
	}
	return m.from(number, c.ID, c.Recording.Sources, r, c.Duration, c.Recording.Rate)
}

// from takes the first file among the sources (the others are further channels). Commands are not
// run and addresses not fetched: the manifest is believed about them.
func (m *manifest) from(number int, id string, sources []lhotseSource, r mention, seconds float64,
	rate int) error {
	for _, s := range sources {
		if s.Type == "file" && s.Source != "" {
			r.path = s.Source
			m.add(r)
			return nil
		}
	}
	kind := "nothing"
	if len(sources) > 0 {
		kind = sources[0].Type
	}
	if kind == "command" || kind == "url" {
		m.given(id, seconds, rate, r.text)
		return nil
	}
	return m.bad(number, "%s: its audio comes from %q, which is not supported", fault.Shorten(id),
		fault.Shorten(kind))
}

// mix takes several cuts that are added up: the last one to end ends it.
func (m *manifest) mix(number int, l *lhotseRow) error {
	end, rate := 0.0, 0
	var texts []string
	for _, t := range l.Tracks {
		end = max(end, t.Offset+t.Cut.Duration)
		if t.Cut.Recording != nil {
			rate = max(rate, t.Cut.Recording.Rate)
		}
		if text := t.Cut.text(true); text != nil {
			texts = append(texts, *text)
		}
	}
	if !(end > 0 && end <= maxClipS) {
		return m.bad(number, "%s: mixes %g s", l.ID, end)
	}
	var text *string
	if all := strings.Join(texts, " "); m.texts && all != "" {
		text = &all
	}
	m.given(l.ID, end, rate, text)
	return nil
}

// resized reports whether Lhotse changes the recording's length when it loads it: then the file
// cannot tell the cut's.
func (r *lhotseRecording) resized() bool {
	t := string(r.Transforms)
	return strings.Contains(t, "Speed") || strings.Contains(t, "Tempo")
}

// text joins what the supervisions say.
func (c *lhotseCut) text(wanted bool) *string {
	var texts []string
	for _, s := range c.Supervisions {
		if s.Text != nil {
			texts = append(texts, *s.Text)
		}
	}
	if !wanted || len(texts) == 0 {
		return nil
	}
	all := strings.Join(texts, " ")
	return &all
}
