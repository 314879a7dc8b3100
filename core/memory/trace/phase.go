package trace

import (
	"fmt"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// MarshalJSON writes a phase as [event, name].
func (p Phase) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Event, p.Name}) }

// UnmarshalJSON reads [event, name].
func (p *Phase) UnmarshalJSON(raw []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("a phase is [event, name], not %s", fault.Shorten(string(raw)))
	}
	if err := json.Unmarshal(parts[0], &p.Event); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &p.Name)
}
