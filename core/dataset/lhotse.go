package dataset

import (
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Lhotse's manifests (lhotse.readthedocs.io, "Corpus", "Cuts"): recordings with sources, and cuts
// out of them. jsonLines asks each line here first.

// lhotseRow is a line: a cut, a recording, or a mix of cuts.
type lhotseRow struct {
	lhotseCut
	Sources []lhotseSource `json:"sources"` // of a recording
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

// lhotse adds the clip of a line in Lhotse's format; isLhotse is false of any other line.
func (m *manifest) lhotse(number int, line []byte) (isLhotse bool, err error) {
	var row lhotseRow
	if err := json.Unmarshal(line, &row); err != nil {
		return false, nil
	}
	switch {
	case len(row.Tracks) > 0:
		return true, m.addMix(number, &row)
	case row.Recording != nil:
		return true, m.addCut(number, &row.lhotseCut)
	case len(row.Sources) > 0:
		return true, m.addSource(number, row.ID, row.Sources, mention{}, row.Duration, row.Rate)
	case row.Type == "PaddingCut":
		return true, m.bad(number, "%s: is padding without audio", fault.Shorten(row.ID))
	}
	return false, nil
}

func (m *manifest) addCut(number int, c *lhotseCut) error {
	if !(c.Start >= 0 && c.Start <= maxClipS && c.Duration > 0 && c.Duration <= maxClipS) {
		return m.bad(number, "%s: cuts %g s from %g s on", fault.Shorten(c.ID), c.Duration, c.Start)
	}
	r := mention{cut: true, offset: c.Start, seconds: c.Duration}
	if m.wanted.Texts {
		r.text = c.text()
	}
	if c.Recording.resized() {
		m.addUnmeasured(c.ID, c.Duration, c.Recording.Rate, r.text)
		return nil
	}
	return m.addSource(number, c.ID, c.Recording.Sources, r, c.Duration, c.Recording.Rate)
}

// addSource adds the first file among the sources; the others are further channels. Commands are
// not run and addresses not fetched: of these the duration is the manifest's.
func (m *manifest) addSource(number int, id string, sources []lhotseSource, r mention,
	seconds float64, rate int) error {
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
		m.addUnmeasured(id, seconds, rate, r.text)
		return nil
	}
	return m.bad(number, "%s: its audio comes from %q, which is not supported", fault.Shorten(id),
		fault.Shorten(kind))
}

// addMix adds cuts that are heard at once as one clip, which lasts until the last of them ends.
func (m *manifest) addMix(number int, row *lhotseRow) error {
	end, rate := 0.0, 0
	var texts []string
	for _, t := range row.Tracks {
		end = max(end, t.Offset+t.Cut.Duration)
		if t.Cut.Recording != nil {
			rate = max(rate, t.Cut.Recording.Rate)
		}
		if text := t.Cut.text(); text != nil {
			texts = append(texts, *text)
		}
	}
	if !(end > 0 && end <= maxClipS) {
		return m.bad(number, "%s: mixes %g s", fault.Shorten(row.ID), end)
	}
	var text *string
	if all := strings.Join(texts, " "); m.wanted.Texts && all != "" {
		text = &all
	}
	m.addUnmeasured(row.ID, end, rate, text)
	return nil
}

// resized reports whether Lhotse changes the recording's length when it loads it, by its transforms
// Speed and Tempo: then the cut's length does not follow from the file.
func (r *lhotseRecording) resized() bool {
	t := string(r.Transforms)
	return strings.Contains(t, "Speed") || strings.Contains(t, "Tempo")
}

// text joins the texts of the supervisions; nil without any.
func (c *lhotseCut) text() *string {
	var texts []string
	for _, s := range c.Supervisions {
		if s.Text != nil {
			texts = append(texts, *s.Text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	all := strings.Join(texts, " ")
	return &all
}
