// Tables: dense, sorted by the server or here, with a search and pages. On a narrow screen each row becomes a card.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useLasting, useResource } from '../resource.ts';
import type { List, Query } from '../api.ts';
import { count } from '../format.ts';
import { Empty, Loading, Refused } from './parts.tsx';
import { Icon } from './icon.tsx';

export interface Column<Row> {
  head: string;
  cell: (row: Row) => ComponentChildren;
  number?: boolean;
  /** The server's name for sorting by it. */
  sort?: string;
  /** Takes what room there is. */
  main?: boolean;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  sort?: string;
  onSort?: (sort: string) => void;
}

export function Table<Row>({ label, columns, rows, id, sort, onSort }: TableProps<Row>) {
  return (
    <div class="scrolling" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.head} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.head} data-head={column.head} class={`${column.number ? 'number' : ''} ${column.main ? 'main' : ''}`}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head<Row>({ column, sort, onSort }: { column: Column<Row>; sort: string | undefined; onSort: ((sort: string) => void) | undefined }) {
  const name = column.sort;
  const classes = `${column.number ? 'number' : ''} ${column.main ? 'main' : ''}`;
  if (name === undefined || onSort === undefined) return <th scope="col" class={classes}>{column.head}</th>;
  const order = sort === name ? 'ascending' : sort === `-${name}` ? 'descending' : 'none';
  // Numbers are looked for from the largest on.
  const next = order === 'none' ? (column.number ? `-${name}` : name) : order === 'ascending' ? `-${name}` : name;
  return (
    <th scope="col" class={classes} aria-sort={order}>
      <button type="button" class={`sort ${order}`} onClick={() => onSort(next)}>
        {column.head} <Icon name="down" />
      </button>
    </th>
  );
}

interface ListingProps<Row> {
  label: string;
  address: string;
  query?: Query;
  columns: Column<Row>[];
  id: (row: Row) => string;
  empty: ComponentChildren;
  every?: number;
  sort?: string;
  /** What the search looks through. */
  placeholder?: string;
  /** Beside the search. */
  more?: ComponentChildren;
  turn?: number;
}

const PAGE = 50;

/** A list of the server, with a search, pages and sorting. */
export function Listing<Row>({ label, address, query = {}, columns, id, empty, every = 5000, sort: first = 'name', placeholder = 'Search by name', more, turn = 0 }: ListingProps<Row>) {
  const [typed, setTyped] = useState('');
  const [search, setSearch] = useState('');
  const [sort, setSort] = useState(first);
  const [offset, setOffset] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      setSearch(typed.trim());
      setOffset(0);
    }, 200);
    return () => clearTimeout(timer);
  }, [typed]);
  const resource = useLasting(useResource<List<Row>>(address, { ...query, search, sort, offset, limit: PAGE }, every));
  useEffect(() => {
    if (turn > 0) resource.reload();
  }, [turn]);
  const { data, refusal, loading } = resource;
  return (
    <>
      <div class="tools">
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search {label}</span>
          <input type="search" value={typed} placeholder={placeholder} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        {more}
        {data && <span class="total">{count(data.total)} in all</span>}
      </div>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && data.items.length > 0 && <Table label={label} columns={columns} rows={data.items} id={id} sort={sort} onSort={setSort} />}
      {data && data.items.length === 0 && (search === '' ? empty : <Empty title={`Nothing is found for “${search}”.`} />)}
      {data && data.total > PAGE && (
        <nav class="pager" aria-label="Pages">
          <button type="button" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - PAGE))}>
            Previous
          </button>
          <span>
            {count(offset + 1)} to {count(offset + data.items.length)} of {count(data.total)}
          </span>
          <button type="button" disabled={offset + data.items.length >= data.total} onClick={() => setOffset(offset + PAGE)}>
            Next
          </button>
        </nav>
      )}
    </>
  );
}
