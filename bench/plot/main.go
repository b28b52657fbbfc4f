// Command plot draws the results of bench/rollouts as an SVG. It is a module
// of its own so that what draws is no dependency of the daemon.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width  = 24 * vg.Centimeter
	height = 10 * vg.Centimeter
	margin = 3 * vg.Millimeter
)

func main() {
	in := flag.String("in", "results/rollouts.json", "what bench/rollouts has written")
	out := flag.String("out", "../docs/rollouts.svg", "where the drawing goes")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

type results struct {
	Scale float64  `json:"scale"`
	Runs  []oneRun `json:"runs"`
}

type oneRun struct {
	N         int       `json:"n"`
	Multiplex int       `json:"multiplex"`
	Duration  quantiles `json:"duration_s"`
	Overhead  quantiles `json:"overhead_s"`
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
}

func run(in, out string) error {
	text, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("read %s: %w", in, err)
	}
	duration, err := r.panel("duration of a rollout", func(one oneRun) quantiles { return one.Duration })
	if err != nil {
		return err
	}
	overhead, err := r.panel("of it, overhead", func(one oneRun) quantiles { return one.Overhead })
	if err != nil {
		return err
	}
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 2 * margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin}
	plots := [][]*plot.Plot{{duration, overhead}}
	for i, c := range plot.Align(plots, tiles, draw.New(canvas))[0] {
		plots[0][i].Draw(c)
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// panel draws p50 and p90 over the number of rollouts, a colour for each
// multiplex.
func (r results) panel(title string, of func(oneRun) quantiles) (*plot.Plot, error) {
	p := plot.New()
	sans := func(s *font.Font, size font.Length) {
		s.Variant, s.Size = "Sans", size
	}
	sans(&p.Title.TextStyle.Font, 12)
	sans(&p.X.Label.TextStyle.Font, 10)
	sans(&p.Y.Label.TextStyle.Font, 10)
	sans(&p.X.Tick.Label.Font, 9)
	sans(&p.Y.Tick.Label.Font, 9)
	sans(&p.Legend.TextStyle.Font, 9)
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "rollouts at once", "seconds"
	p.Y.Min, p.Legend.Top, p.Legend.Left, p.Legend.Padding = 0, true, true, 2
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{Y: 220}
	p.Add(grid)

	var ticks []plot.Tick
	highest := 0.0
	for i, multiplex := range r.multiplexes() {
		var p50, p90 plotter.XYs
		for _, one := range r.Runs {
			if one.Multiplex != multiplex {
				continue
			}
			x, q := math.Log2(float64(one.N)), of(one)
			p50, p90 = append(p50, plotter.XY{X: x, Y: q.P50}), append(p90, plotter.XY{X: x, Y: q.P90})
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(one.N)})
			highest = max(highest, q.P90)
		}
		for _, curve := range []struct {
			name   string
			points plotter.XYs
			dashes []vg.Length
		}{{"p90", p90, []vg.Length{4, 3}}, {"p50", p50, nil}} {
			line, points, err := plotter.NewLinePoints(curve.points)
			if err != nil {
				return nil, fmt.Errorf("draw %s of multiplex %d: %w", curve.name, multiplex, err)
			}
			line.Color, line.Width, line.Dashes = shade(i), 1.5, curve.dashes
			points.Color, points.Shape, points.Radius = shade(i), draw.CircleGlyph{}, 2
			p.Add(line, points)
			p.Legend.Add(fmt.Sprintf("multiplex %d, %s", multiplex, curve.name), line, points)
		}
	}
	slices.SortFunc(ticks, func(a, b plot.Tick) int { return int(a.Value) - int(b.Value) })
	p.X.Tick.Marker = plot.ConstantTicks(slices.CompactFunc(ticks, func(a, b plot.Tick) bool { return a.Label == b.Label }))
	p.Y.Max = 1.4 * highest // room for the legend
	return p, nil
}

func (r results) multiplexes() []int {
	var all []int
	for _, one := range r.Runs {
		all = append(all, one.Multiplex)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shade is a colour that is told from the others by the colour-blind too.
func shade(i int) color.Color {
	shades := []color.Color{
		color.RGBA{R: 213, G: 94, B: 0, A: 255},
		color.RGBA{R: 0, G: 114, B: 178, A: 255},
		color.RGBA{R: 0, G: 158, B: 115, A: 255},
	}
	return shades[i%len(shades)]
}
