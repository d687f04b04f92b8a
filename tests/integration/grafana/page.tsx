// Draws one dashboard's panels with Grafana's own packages, from the answers that a real Prometheus gave.
// Grafana's: frames' transformations, field overrides, units, thresholds, mappings, stats, graphs, tables, bars.
// Ours: how Prometheus' answers become frames, the grid, and the state timelines (their component is not published).
import React from 'react';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';
import {
  applyFieldOverrides, cacheFieldDisplayNames, createDataFrame, createTheme, dateTime, FieldType,
  getDisplayValueAlignmentFactors, getFieldDisplayName, getFieldDisplayValues,
  Registry, setTimeZoneResolver, standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry,
  ThemeContext, transformDataFrame,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import story from './answers.json';

const { board, answers } = (story as any).boards[new URLSearchParams(location.search).get('board') ?? 'fleet'];
const light = location.search.includes('light');
const theme = createTheme({ colors: { mode: light ? 'light' : 'dark' } });
const range = { from: dateTime((story.ends - 3 * 3600) * 1000), to: dateTime(story.ends * 1000) } as any;
range.raw = range;
setTimeZoneResolver(() => 'utc');

const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'mappings', 'thresholds', 'color', 'links', 'filterable'];
const CUSTOM = ['fillOpacity', 'lineWidth', 'fillBelowTo', 'cellOptions', 'width', 'minWidth', 'align', 'stacking', 'drawStyle',
  'showPoints', 'spanNulls', 'thresholdsStyle', 'axisSoftMin', 'filterable'];
const item = (id: string, isCustom: boolean) => ({
  id: isCustom ? `custom.${id}` : id, path: id, name: id, isCustom, process: (value: any) => value, shouldApply: () => true,
});
const registry: any = new Registry(() => [...STANDARD.map((id) => item(id, false)), ...CUSTOM.map((id) => item(id, true))] as any);
standardFieldConfigEditorRegistry.setInit(() => STANDARD.map((id) => item(id, false)) as any);
const ways = new Map(Object.values(standardTransformers).map((each: any) => [each.id, each])); // some have two names
standardTransformersRegistry.setInit(() => [...ways.values()].map((transformation: any) => ({
  id: transformation.id, name: transformation.name, transformation: async () => transformation,
})) as any);

const legend = (format: string, metric: any) =>
  format === '__auto' ? Object.entries(metric).map(([k, v]) => `${k}="${v}"`).join(', ')
    : format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');

function framesOf(panel: any): any[] {
  const several = panel.targets.length > 1;
  return panel.targets.flatMap((target: any) => {
    const rows: any[] = answers[panel.id][target.refId];
    if (target.format === 'table') {
      const labels = [...new Set(rows.flatMap((row) => Object.keys(row.metric)))];
      return [createDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: rows.map((row) => row.value[0] * 1000) },
        ...labels.map((name) => ({ name, type: FieldType.string, values: rows.map((row) => row.metric[name]) })),
        { name: several ? `Value #${target.refId}` : 'Value', type: FieldType.number, values: rows.map((row) => Number(row.value[1])) },
      ] })];
    }
    return rows.map((row) => {
      const points = row.values ?? [row.value];
      const known = new Map(points.map(([at, value]: any) => [at, Number(value)]));
      const times = row.values ? Array.from({ length: 181 }, (_, n) => story.ends - 3 * 3600 + n * story.step) : [points[0][0]];
      return createDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: times.map((at) => at * 1000) },
        { name: 'Value', type: FieldType.number, labels: row.metric, values: times.map((at) => known.get(at) ?? null),
          config: { displayNameFromDS: legend(target.legendFormat, row.metric) } },
      ] });
    });
  });
}

async function prepared(panel: any) {
  const frames = panel.transformations
    ? await lastValueFrom(transformDataFrame(panel.transformations, framesOf(panel))) : framesOf(panel);
  const data = applyFieldOverrides({
    data: frames, fieldConfig: panel.fieldConfig, theme, fieldConfigRegistry: registry, timeZone: 'utc',
    replaceVariables: (text: string) => text,
  } as any);
  cacheFieldDisplayNames(data);
  return data;
}

function Timeline({ data, width, height }: any) {
  const bar = Math.min(24, (height - 4) / Math.max(1, data.length));
  const left = 140;
  return <svg width={width} height={height}>{data.map((frame: any, line: number) => {
    const field = frame.fields[1];
    const each = (width - left) / field.values.length;
    return <g key={line}>
      <text x={left - 8} y={line * bar + bar * 0.7} textAnchor="end" fontSize={11} fill={theme.colors.text.primary}>
        {getFieldDisplayName(field, frame, data)}</text>
      {field.values.map((value: any, n: number) => value === null ? null :
        <rect key={n} x={left + n * each} y={line * bar + 1} width={each + 0.5} height={bar * 0.85} fill={field.display(value).color} />)}
    </g>;
  })}</svg>;
}

function Inner({ panel, data, width, height }: any) {
  if (!data.some((frame: any) => frame.length)) { return <div className="empty">No data</div>; }
  if (panel.type === 'timeseries') {
    return <TimeSeries frames={data} width={width} height={height} timeRange={range} timeZone="utc" legend={panel.options.legend}
      options={panel.options} />;
  }
  if (panel.type === 'table') {
    return <TableNG data={data[0]} width={width} height={height} sortBy={panel.options.sortBy} cellHeight={panel.options.cellHeight}
      getActions={() => []} structureRev={1} timeRange={range} disableSanitizeHtml={false} />;
  }
  if (panel.type === 'state-timeline') { return <Timeline data={data} width={width} height={height} />; }
  const shown = getFieldDisplayValues({
    data, reduceOptions: panel.options.reduceOptions, fieldConfig: panel.fieldConfig, theme, timeZone: 'utc',
    replaceVariables: (text: string) => text, sparkline: panel.options.graphMode === 'area',
  } as any);
  if (panel.type === 'stat') {
    return <>{shown.map((each, n) => <BigValue key={n} width={width / shown.length} height={height} value={each.display} theme={theme}
      sparkline={each.sparkline} count={shown.length} {...panel.options}
      textMode={panel.options.textMode} />)}</>;
  }
  const each = Math.min(panel.options.maxVizHeight, height / shown.length);
  return <>{shown.map((one, n) => <BarGauge key={n} width={width} height={each - 6} value={one.display} field={one.field} theme={theme}
    display={one.view ? one.view.getFieldDisplayProcessor(one.colIndex!) : undefined} alignmentFactors={getDisplayValueAlignmentFactors(shown)}
    {...panel.options} text={{}} />)}</>;
}

function Panel({ panel, data, unit }: any) {
  const { x, y, w, h } = panel.gridPos;
  const [width, height] = [w * unit - 8, h * 38 - 8];
  return <div className="panel" style={{ left: x * unit, top: y * 38, width, height }}>
    <div className="title">{panel.title}</div>
    <div style={{ padding: '0 8px', width, height: height - 40 }}>
      {panel.type === 'row' ? null : <Inner panel={panel} data={data} width={width - 16} height={height - 44} />}</div>
  </div>;
}

const STYLE = `body{margin:0;height:auto;overflow:visible!important;background:${theme.colors.background.canvas};color:${theme.colors.text.primary};font:14px Inter,Helvetica,Arial,sans-serif}
.panel{position:absolute;background:${theme.colors.background.primary};border:1px solid ${theme.colors.border.weak};overflow:hidden;box-sizing:border-box}
.title{padding:8px;font-weight:500;white-space:nowrap}.empty{text-align:center;padding-top:20px;color:gray}
.row{position:absolute;font-weight:500;padding:8px}`;

async function main() {
  let moved = 0;
  const placed: any[] = [];
  for (const panel of board.panels) {
    const at = (one: any, by: number) => ({ ...one, gridPos: { ...one.gridPos, y: one.gridPos.y + by } });
    placed.push(at(panel, moved));
    if (panel.panels?.length) {
      panel.panels.forEach((inner: any) => placed.push(at(inner, moved)));
      moved += Math.max(...panel.panels.map((inner: any) => inner.gridPos.y + inner.gridPos.h)) - panel.gridPos.y - 1;
    }
  }
  const told = await Promise.all(placed.map(async (panel) => ({ panel, data: panel.type === 'row' ? [] : await prepared(panel) })));
  const bottom = Math.max(...placed.map((panel) => panel.gridPos.y + panel.gridPos.h));
  const root = document.createElement('div');
  root.style.cssText = `position:relative;height:${bottom * 38}px`;
  document.body.append(root);
  const unit = Math.floor((document.documentElement.clientWidth - 8) / 24);
  createRoot(root).render(<ThemeContext.Provider value={theme}><GlobalStyles /><style>{STYLE}</style>
    {told.map(({ panel, data }) => panel.type === 'row'
      ? <div key={panel.id} className="row" style={{ top: panel.gridPos.y * 38 }}>{panel.title}{panel.collapsed ? ' (folded)' : ''}</div>
      : <Panel key={panel.id} panel={panel} data={data} unit={unit} />)}</ThemeContext.Provider>);
  setTimeout(() => document.body.setAttribute('data-ready', '1'), 1500);
}
void main();
