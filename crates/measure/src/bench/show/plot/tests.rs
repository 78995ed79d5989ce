use super::*;
use crate::bench::result::Moment;
use crate::bench::show::figures::{self, Figure};
use crate::bench::show::sample;
use crate::bench::show::scale::{Scale, ScaleKind};
use crate::bench::show::units::Unit;

fn drawn(figure: &Figure, size: Size) -> String {
    let head = Head { id: &figure.id, title: &figure.title, desc: &figure.desc, alone: false };
    figure.plot.svg(&head, size)
}

/// All values of an attribute.
fn attributes<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
    let key = format!(" {name}=\"");
    svg.match_indices(&key).map(|(at, _)| svg[at + key.len()..].split('"').next().unwrap()).collect()
}

fn points(path: &str) -> Vec<(f64, f64)> {
    let pairs = path.split(['M', 'L', 'Z']).filter(|p| !p.is_empty());
    pairs.map(|p| p.split_once(' ').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap()).collect()
}

#[test]
fn every_coordinate_is_inside_the_view() {
    for (name, result) in sample::all() {
        for figure in figures::all(&result) {
            for size in [Size::Wide, Size::Narrow] {
                let svg = drawn(&figure, size);
                let height: f64 = attributes(&svg, "viewBox")[0].rsplit(' ').next().unwrap().parse().unwrap();
                for (x, y) in attributes(&svg, "d").into_iter().flat_map(points) {
                    let inside = (0.0..=size.width()).contains(&x) && (0.0..=height).contains(&y);
                    assert!(inside, "{name} {} {size:?}: {x} {y}", figure.id);
                }
                for x in ["x", "x1", "x2", "cx"].iter().flat_map(|a| attributes(&svg, a)) {
                    let x: f64 = x.parse().unwrap();
                    assert!((0.0..=size.width()).contains(&x), "{name} {} {size:?}: x {x}", figure.id);
                }
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name} {}", figure.id);
            }
        }
    }
}

#[test]
fn the_sweep_has_a_point_for_each_block_size() {
    let result = sample::box_e();
    let figure = figures::all(&result).into_iter().find(|f| f.id == "block-size-1").unwrap();
    let svg = drawn(&figure, Size::Wide);
    let paths: Vec<Vec<(f64, f64)>> = attributes(&svg, "d").into_iter().map(points).collect();
    assert_eq!(paths.iter().map(Vec::len).collect::<Vec<_>>(), [14; 4]);
    // 14 equal steps on a logarithmic axis, from its one end to the other.
    let xs: Vec<f64> = paths[0].iter().map(|p| p.0).collect();
    assert_eq!((xs[0], xs[13]), (52.0, 704.0));
    assert!(xs.windows(2).all(|w| (w[1] - w[0] - 652.0 / 13.0).abs() < 0.11), "{xs:?}");
    // Up is more: the y axis ends at 400 MB/s and is 250 pixels high.
    let last = result.runs[13].repeats.iter().map(|r| r.bytes_per_s);
    let median = crate::bench::show::facts::median(last).unwrap();
    assert!((paths[0][13].1 - (276.0 - 250.0 * median / 400e6)).abs() < 0.11);
}

#[test]
fn the_knee_stands_where_it_was() {
    let result = sample::box_a();
    let figure = figures::all(&result).into_iter().find(|f| f.id == "over-time-1").unwrap();
    let svg = drawn(&figure, Size::Wide);
    // 9 of 30 seconds; four disks with the same knee have one mark.
    let expected = format!("x1=\"{}\"", svg::px(52.0 + 652.0 * 9.0 / 30.0));
    let marks: Vec<&str> = svg.split("<g class=\"mark\"").skip(1).collect();
    assert_eq!(marks.len(), 1);
    assert!(marks[0].contains(&expected) && marks[0].contains(">knee</text>"), "{}", marks[0]);
}

#[test]
fn stacked_cores_reach_what_they_add_up_to() {
    let result = sample::box_a();
    let figure = figures::all(&result).into_iter().find(|f| f.id.ends_with("cores")).unwrap();
    let Plot::Panels(plot) = &figure.plot else { panic!("cores are panels") };
    assert_eq!(plot.panels.len(), 4);
    // nice and steal never occurred.
    assert_eq!(plot.panels[0].series.iter().map(|s| s.n).collect::<Vec<_>>(), [0, 2, 3, 4]);
    let svg = drawn(&figure, Size::Wide);
    assert_eq!(attributes(&svg, "d").len(), 16);
    // The first area of a panel stands on its floor.
    let area = points(attributes(&svg, "d")[0]);
    let rect: Vec<f64> = attributes(&svg, "data-rect")[0].split(' ').map(|v| v.parse().unwrap()).collect();
    assert_eq!(area.last().unwrap().1, rect[3]);
    assert!(area.iter().all(|p| p.1 >= rect[1] && p.1 <= rect[3]));
}

#[test]
fn days_of_samples_become_a_bounded_picture() {
    let mut result = sample::box_a();
    for run in &mut result.runs {
        run.repeats[0].over_time = (1..=100_000)
            .map(|n| Moment { at_ms: n * 500, bytes_per_s: (n % 1000) as f64, operations_per_s: 1.0 })
            .collect();
    }
    for figure in figures::all(&result) {
        for size in [Size::Wide, Size::Narrow] {
            let svg = drawn(&figure, size);
            let longest = attributes(&svg, "d").into_iter().map(|d| points(d).len()).max().unwrap_or(0);
            assert!(longest <= 2 * size.points_max(), "{}: {longest} points", figure.id);
            assert!(svg.len() < 400_000, "{}: {} bytes", figure.id, svg.len());
        }
    }
}

#[test]
fn a_hole_interrupts_lines_and_stacks() {
    let axis = |high| Axis {
        scale: Scale { low: 0.0, high, kind: ScaleKind::Linear },
        unit: Unit::Percent,
        name: String::new(),
    };
    let y = vec![1.0, 2.0, f64::NAN, 4.0, 5.0];
    let series = vec![Series { n: 0, x: vec![0.0, 1.0, 2.0, 3.0, 4.0], y }];
    for stacked in [false, true] {
        let plot = Plot::Panels(Panels {
            x: axis(4.0),
            y: axis(5.0),
            names: Vec::new(),
            palette: "s",
            panels: vec![Panel { series: series.clone(), ..Panel::default() }],
            stacked,
            dots: false,
        });
        let svg = plot.svg(&Head { id: "x", title: "t", desc: "d", alone: false }, Size::Wide);
        let path = attributes(&svg, "d")[0];
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(points(path).len(), if stacked { 8 } else { 4 });
    }
}

#[test]
fn bars_are_as_long_as_their_values() {
    let bar = |value| Row { label: "a".into(), bar: Some(value), value: "1 MB/s".into(), ..Row::default() };
    let rows = Rows {
        x: Axis {
            scale: Scale { low: 0.0, high: 100.0, kind: ScaleKind::Linear },
            unit: Unit::Count,
            name: String::new(),
        },
        rows: vec![bar(100.0), bar(25.0), bar(f64::NAN)],
        names: Vec::new(),
        line_at: None,
    };
    let svg = rows.svg(&Head { id: "x", title: "t", desc: "d", alone: false }, Size::Wide);
    let (left, right) = rows.span_px(Size::Wide);
    let full: f64 = right.parse::<f64>().unwrap() - left.parse::<f64>().unwrap();
    let bars: Vec<f64> = svg
        .split("<rect")
        .filter(|r| r.contains("class=\"bar"))
        .map(|r| attributes(r, "width")[0].parse().unwrap())
        .collect();
    assert_eq!(bars.len(), 2, "what is not known has no bar");
    assert!((bars[0] - full).abs() < 0.11 && (bars[1] - full / 4.0).abs() < 0.11, "{bars:?} of {full}");
}

#[test]
fn absurd_values_are_drawn_somewhere() {
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1e300, f64::MAX] {
        let mut result = sample::box_a();
        for run in &mut result.runs {
            for repeat in &mut run.repeats {
                (repeat.bytes_per_s, repeat.operations_per_s) = (value, value);
                repeat.over_time.iter_mut().for_each(|m| m.bytes_per_s = value);
            }
            run.samples.disks.iter_mut().for_each(|d| d.latency_ms.iter_mut().for_each(|l| *l = value));
        }
        for figure in figures::all(&result) {
            let svg = drawn(&figure, Size::Narrow);
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{value}: {}", figure.id);
        }
    }
}
